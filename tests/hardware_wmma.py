"""wmma cases: load, multiply, store in every shape, type and layout; a kind of data each warp."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from hardware_runs import Case, Part
from hardware_values import KINDS, image
from numpy.typing import NDArray

from ptxgen.launch import Buffer, Launch, Param

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
         "f32": 32, "s32": 32}  # fmt: skip
_CHUNK = 4096
"""Bytes of each warp's A, B or C."""
_REGISTERS = {
    ("f16", 16): 8, ("f16", 32): 8, ("f16", 8): 8, ("bf16", 16): 4, ("bf16", 32): 8,
    ("bf16", 8): 2, ("s8", 16): 2, ("s8", 32): 4, ("s8", 8): 1, ("tf32", 16): 4, ("f64", 8): 1,
    ("s4", 8): 1, ("b1", 8): 1,
}  # fmt: skip
"""Registers of A by (type, M), and of B by (type, N)."""


@dataclass(frozen=True)
class Wmma:
    """One form."""

    shape: tuple[int, int, int]
    kind: str
    """Type of A and B."""
    c: str
    d: str
    types: str
    """What wmma.mma ends with."""
    layouts: tuple[str, str] = ("row", "col")

    @property
    def text(self) -> str:
        """PTX; %a, %b, %c and %o are the warp's addresses."""
        m, n, k = self.shape
        name = f"m{m}n{n}k{k}"
        signed = {"u8": "s8", "u4": "s4"}.get(self.kind, self.kind)
        wide = ".f64" if self.kind == "f64" else ".b32"
        in_a, in_b = _REGISTERS[signed, m], _REGISTERS[signed, n]
        num_c, num_d = (_accumulators(t, m * n) for t in (self.c, self.d))
        kinds = {"f32": ".f32", "f64": ".f64"}
        a, b, c, d = (
            "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"
            for letter, count in (("x", in_a), ("y", in_b), ("z", num_c), ("w", num_d))
        )
        strides = [
            k if self.layouts[0] == "row" else m, k if self.layouts[1] == "col" else n, n, n
        ]  # fmt: skip
        la, lb = self.layouts
        return f"""{{ .reg {wide} %x<{in_a}>, %y<{in_b}>;
.reg {kinds.get(self.c, ".b32")} %z<{num_c}>; .reg {kinds.get(self.d, ".b32")} %w<{num_d}>;
wmma.load.a.sync.aligned.{la}.{name}.global.{self.kind} {a}, [%a], {strides[0]};
wmma.load.b.sync.aligned.{lb}.{name}.global.{self.kind} {b}, [%b], {strides[1]};
wmma.load.c.sync.aligned.row.{name}.global.{self.c} {c}, [%c], {strides[2]};
wmma.mma{self.operation}.sync.aligned.{la}.{lb}.{name}.{self.types} {d}, {a}, {b}, {c};
wmma.store.d.sync.aligned.row.{name}.global.{self.d} [%o], {d}, {strides[3]}; }}"""

    @property
    def operation(self) -> str:
        """Of b1."""
        return ".and.popc" if self.kind == "b1" else ""


def _accumulators(kind: str, elements: int) -> int:
    return elements // 32 // (2 if kind == "f16" else 1)


_LAYOUTS = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))


def forms() -> Iterator[Wmma]:
    """All that sm_80 has."""
    for shape, layouts in product(((16, 16, 16), (32, 8, 16), (8, 32, 16)), _LAYOUTS):
        for c, d in product(("f16", "f32"), repeat=2):
            yield Wmma(shape, "f16", c, d, f"{d}.{c}", layouts)
        yield Wmma(shape, "bf16", "f32", "f32", "f32.bf16.bf16.f32", layouts)
        for kind, saturate in product(("s8", "u8"), ("", ".satfinite")):
            types = f"s32.{kind}.{kind}.s32{saturate}"
            yield Wmma(shape, kind, "s32", "s32", types, layouts)
    for layouts in _LAYOUTS:
        yield Wmma((16, 16, 8), "tf32", "f32", "f32", "f32.tf32.tf32.f32", layouts)
        yield Wmma((8, 8, 4), "f64", "f64", "f64", "rn.f64.f64.f64.f64", layouts)
    for kind in ("s4", "u4"):
        yield Wmma((8, 8, 32), kind, "s32", "s32", f"s32.{kind}.{kind}.s32")
    yield Wmma((8, 8, 128), "b1", "s32", "s32", "s32.b1.b1.s32")


def wmma_case() -> Case:
    """One kernel with all forms."""
    found = list(dict.fromkeys(forms()))
    chunks: list[NDArray[np.uint8]] = []
    parts: list[Part] = []
    body: list[str] = []
    out_at = 0
    for index, form in enumerate(found):
        m, n, _ = form.shape
        for letter, kind in (("a", form.kind), ("b", form.kind), ("c", form.c)):
            at = len(chunks) * _CHUNK
            body.append(
                f"add.u64 %{letter}, %in, {at};\nmad.wide.u32 %{letter}, %warp, {_CHUNK}, "
                f"%{letter};"
            )
            for warp, data in enumerate(KINDS):
                chunks.append(image(kind, data, _CHUNK, 10 * index + ord(letter) + warp))
        nbytes = m * n * _BITS[form.d] // 8
        body.append(f"add.u64 %o, %out, {out_at};\nmad.wide.u32 %o, %warp, {nbytes}, %o;")
        body.append(form.text)
        name = f"wmma {form.shape} {form.types} {form.c} {'.'.join(form.layouts)}"
        parts.append(Part(name, out_at, nbytes * len(KINDS), m * n * len(KINDS)))
        out_at += nbytes * len(KINDS)
    ptx = f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 input, .param .u64 output)
{{
.reg .b64 %in, %out, %a, %b, %c, %o;
.reg .b32 %warp;
ld.param.u64 %in, [input];
ld.param.u64 %out, [output];
mov.u32 %warp, %tid.x;
shr.u32 %warp, %warp, 5;
{chr(10).join(body)}
ret;
}}
"""
    launch = Launch(
        "k", (1, 1, 1), (32 * len(KINDS), 1, 1),
        params=(Param("input", "pointer", "in"), Param("output", "pointer", "out")),
        buffers=(Buffer("in", len(chunks) * _CHUNK), Buffer("out", out_at, "out")),
    )  # fmt: skip
    return Case("wmma", ptx, launch, {"in": np.concatenate(chunks)}, tuple(parts))

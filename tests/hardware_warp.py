"""Instruction forms of one warp for the hardware cases: registers in, registers or memory out.

A form's text uses %i0.. (its inputs), %o0.. (its outputs), %s (a shared address of the lane's 16
bytes of random data; the warp has 2 KiB), %w (the start of the warp's 2 KiB), %g (a global address
of 16 such bytes), %m (a global address of 16 bytes that are its own and are compared), %l (lane).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hardware_runs import Case, Part
from hardware_values import KINDS, image
from numpy.typing import NDArray

from ptxgen.launch import Buffer, Launch, Param

NUM_WARPS = 8
THREADS = 32 * NUM_WARPS
_CLASS_BYTES = {".b32": 4, ".f32": 4, ".f64": 8, ".b64": 8}
_METADATA = {"two of four": (4, 8, 12, 9, 13, 14), "one of two": (4, 14)}
"""Four bits of metadata that are legal: places in ascending order."""


@dataclass(frozen=True)
class Input:
    """Some input registers."""

    values: str
    """A type of hardware_values; int = random bits; small = 0..3; lanes = 0..39; rows and places =
    offsets of 16-byte rows in 2 KiB, the latter all different; two of four and one of two =
    metadata of sparse matrices; pairs, same and full = words that
    are equal in two lanes, in a warp, everywhere (all ones)."""
    count: int = 1
    register: str = ".b32"


@dataclass(frozen=True)
class WarpForm:
    """One form."""

    text: str
    inputs: tuple[Input, ...] = ()
    outputs: int = 0
    """Output registers."""
    register: str = ".b32"
    """Their class."""
    name: str = ""
    """Empty = the text."""
    memory: bool = False
    """Whether [%m] is compared."""


def _data(given: Input, seed: int) -> NDArray[np.uint8]:
    """Shape (warps, registers, lanes) of the register's bytes."""
    rng = np.random.default_rng(seed)
    size = _CLASS_BYTES[given.register]
    shape = (NUM_WARPS, given.count, 32)
    count = int(np.prod(shape))
    if given.values == "small":
        words = rng.integers(0, 4, shape)
    elif given.values == "lanes":
        words = rng.integers(0, 40, shape)
    elif given.values == "rows":
        words = rng.integers(0, 128, shape) * 16
    elif given.values == "places":
        words = np.stack([rng.permutation(128)[:32] * 16 for _ in range(NUM_WARPS * given.count)])
        words = words.reshape(shape)
    elif given.values in _METADATA:
        nibbles = rng.choice(_METADATA[given.values], (*shape, 8))
        words = (nibbles << np.arange(0, 32, 4)).sum(axis=-1)
    elif given.values == "full":
        words = np.full(shape, 0xFFFFFFFF)
    elif given.values == "pairs":
        words = np.broadcast_to(np.arange(32) // 2 % 4, shape)
    elif given.values == "same":
        words = np.broadcast_to(rng.integers(0, 2**32, (NUM_WARPS, given.count, 1)), shape)
    else:
        per_warp = count // NUM_WARPS * size
        return np.concatenate([
            image(given.values, KINDS[w % len(KINDS)], per_warp, seed + w)
            for w in range(NUM_WARPS)
        ])  # fmt: skip
    kind = np.uint32 if size == 4 else np.uint64
    return np.ascontiguousarray(words.astype(kind)).view(np.uint8).reshape(-1)


def warp_case(name: str, forms: Sequence[WarpForm], module: str = "", version: str = "8.7") -> Case:
    """One kernel that executes all forms, one behind the other, in eight warps."""
    scratch = np.random.default_rng(len(name)).integers(0, 256, 2048 * NUM_WARPS, np.uint8)
    chunks = [scratch]
    at, out_at = scratch.size, 0
    body, parts = [], []
    for index, form in enumerate(forms):
        loads, number = [], 0
        declared = [f".reg {form.register} %o<{form.outputs + 1}>;"]
        for given in form.inputs:
            size = _CLASS_BYTES[given.register]
            chunks.append(_data(given, 1000 * index + number))
            for register in range(given.count):
                declared.append(f".reg {given.register} %i{number};")
                loads.append(
                    f"mad.wide.u32 %a, %warp, {given.count * 32 * size}, %in; "
                    f"mad.wide.u32 %a, %l, {size}, %a; "
                    f"ld.global{given.register} %i{number}, [%a+{at + register * 32 * size}];"
                )
                number += 1
            at += chunks[-1].size
        size = _CLASS_BYTES[form.register]
        width = 16 if form.memory else 0
        stores = [
            f"st.global{form.register} [%m+{width * THREADS + (i * THREADS) * size}], %o{i};"
            for i in range(form.outputs)
        ]
        nbytes = THREADS * (width + form.outputs * size)
        shift = f"mad.wide.u32 %m, %thread, {size}, %out; add.u64 %m, %m, {out_at};"
        text = form.text
        place = f"mad.wide.u32 %m, %thread, 16, %out; add.u64 %m, %m, {out_at};"
        body.append("\n".join(["{", *declared, *loads, place, text, shift, *stores, "}"]))
        parts.append(Part(form.name or form.text, out_at, nbytes, THREADS * max(form.outputs, 1)))
        out_at += nbytes
    ptx = f""".version {version}
.target sm_90a
.address_size 64
{module}
.visible .entry k(.param .u64 input, .param .u64 output, .param .align 16 .b8 block[64])
{{
.shared .align 1024 .b8 smem[{2048 * NUM_WARPS}];
.reg .b64 %in, %out, %a, %g, %m, %x;
.reg .b32 %thread, %warp, %l, %s, %w, %n, %c<4>;
.reg .pred %p, %q;
ld.param.u64 %in, [input];
ld.param.u64 %out, [output];
mov.u32 %thread, %tid.x;
mov.u32 %l, %laneid;
shr.u32 %warp, %thread, 5;
mov.u32 %w, smem;
mad.lo.u32 %w, %warp, 2048, %w;
mad.lo.u32 %s, %l, 16, %w;
mad.wide.u32 %g, %warp, 2048, %in;
mad.wide.u32 %g, %l, 16, %g;
mov.u32 %n, 0;
FILL:
cvt.u64.u32 %a, %n;
add.u64 %a, %a, %g;
ld.global.v4.b32 {{%c0, %c1, %c2, %c3}}, [%a];
{{ .reg .b32 %to; add.u32 %to, %s, %n; st.shared.v4.b32 [%to], {{%c0, %c1, %c2, %c3}}; }}
add.u32 %n, %n, 512;
setp.lt.u32 %p, %n, 2048;
@%p bra FILL;
bar.warp.sync -1;
{chr(10).join(body)}
ret;
}}
"""
    block = bytes(range(64)).hex()
    launch = Launch(
        "k", (1, 1, 1), (THREADS, 1, 1),
        params=(
            Param("input", "pointer", "in"), Param("output", "pointer", "out"),
            Param("block", "bytes", block),
        ),
        buffers=(Buffer("in", at), Buffer("out", out_at, "out")),
    )  # fmt: skip
    return Case(name, ptx, launch, {"in": np.concatenate(chunks)}, tuple(parts))

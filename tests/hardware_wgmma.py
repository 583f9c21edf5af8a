"""wgmma cases: one instruction, or a chain, on images of shared memory, all of D written out.

Four CTAs work on one kind of data each (hardware_values.KINDS). Shared memory is filled as it
is, so that any descriptor names some operand.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, product

import numpy as np
from hardware_runs import Case, Part
from hardware_values import KINDS, image
from numpy.typing import NDArray

from ptxgen.launch import Buffer, Launch, Param

THREADS = 128
A_BYTES = 8192
"""Image of A; B follows."""
SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Layout:
    """Fields of one matrix descriptor."""

    start: int = 0
    """Bytes from the operand's image."""
    leading: int = 128
    stride: int = 256
    swizzle: int = 0
    base: int = 0

    def __str__(self) -> str:
        """Short: +start lead/stride swizzle base."""
        return f"+{self.start} {self.leading}/{self.stride} {self.swizzle}B base {self.base}"

    @property
    def bits(self) -> int:
        """The descriptor without the address of the image."""
        return (
            self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32
            | self.base << 49 | SWIZZLES[self.swizzle] << 62
        )  # fmt: skip


PACKED = Layout()
"""K-major, no swizzle: core matrices of 128 bytes, two beside each other, then the next 8 rows."""


@dataclass(frozen=True)
class Wgmma:
    """One form."""

    d: str
    a: str
    b: str
    n: int
    registers: bool = False
    """A in registers."""
    scale_d: str = "1"
    """0, 1, %p (false in odd CTAs) or !%p."""
    scales: tuple[int, int] = (1, 1)
    """imm-scale of A and B."""
    majors: tuple[int, int] = (0, 0)
    """imm-trans of A and B; 1 = MN-major."""
    layout_a: Layout = PACKED
    layout_b: Layout = PACKED
    saturate: bool = False
    selector: int = -1
    """sp-sel of a sparse form; -1 = dense."""
    chain: int = 1
    """Instructions into the same accumulator, K advancing by 32 bytes."""

    @property
    def k(self) -> int:
        """Depth of one instruction."""
        dense = {"f16": 16, "bf16": 16, "tf32": 8, "b1": 256}.get(self.a, 32)
        return dense if self.selector < 0 else 2 * dense

    @property
    def name(self) -> str:
        """All that distinguishes the form."""
        flags = "".join(
            text for text, is_set in (
                (".sat", self.saturate), (" A in registers", self.registers),
                (f" scale_d={self.scale_d}", self.scale_d != "1"),
                (f" scales={self.scales}", self.scales != (1, 1)),
                (f" majors={self.majors}", self.majors != (0, 0)),
                (f" A {self.layout_a}", self.layout_a != PACKED),
                (f" B {self.layout_b}", self.layout_b != PACKED),
                (f" sparse {self.selector}", self.selector >= 0),
                (f" x{self.chain}", self.chain > 1),
            ) if is_set
        )  # fmt: skip
        return f"wgmma m64n{self.n}k{self.k} {self.d}.{self.a}.{self.b}{flags}"

    @property
    def num_registers(self) -> int:
        """32-bit registers of D in each thread."""
        return self.n // (4 if self.d == "f16" else 2)

    @property
    def b_bytes(self) -> int:
        """Image of B: packed, or room for strides."""
        return 8192 if self.layout_b == PACKED and self.chain == 1 else 36864

    @property
    def case(self) -> Case:
        """Its kernel and data."""
        in_bytes = A_BYTES + self.b_bytes
        d_bytes = self.num_registers * THREADS * 4
        meta_bytes = THREADS * 4
        smem = in_bytes + 1024
        body = "\n".join(self._instruction(step) for step in range(self.chain))
        kind = ".b32" if self.d != "f32" else ".f32"
        registers = range(self.num_registers)
        loads = "\n".join(
            f"ld.global{kind} %d{i}, [%in+{in_bytes + i * THREADS * 4}];" for i in registers
        )
        stores = "\n".join(f"st.global{kind} [%out+{i * THREADS * 4}], %d{i};" for i in registers)
        a_loads = "\n".join(f"ld.global.b32 %a{i}, [%in+{i * THREADS * 4}];" for i in range(4))
        ptx = f"""{_HEAD}
.reg {kind} %d<{self.num_registers}>;
mul.lo.u32 %r, %cta, {in_bytes + d_bytes + meta_bytes};
cvt.u64.u32 %x, %r;
add.u64 %in, %in, %x;
mul.wide.u32 %x, %cta, {d_bytes};
add.u64 %out, %out, %x;
mov.u32 %base, smem;
add.u32 %base, %base, 1023;
and.b32 %base, %base, {0xFFFFFC00};
mad.wide.u32 %in, %thread, 16, %in;
mad.lo.u32 %to, %thread, 16, %base;
mov.u32 %r, 0;
COPY:
ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%in];
st.shared.v4.b32 [%to], {{%a0, %a1, %a2, %a3}};
add.u64 %in, %in, {THREADS * 16};
add.u32 %to, %to, {THREADS * 16};
add.u32 %r, %r, {THREADS * 16};
setp.lt.u32 %q, %r, {in_bytes};
@%q bra COPY;
sub.u64 %in, %in, {in_bytes};
mul.wide.u32 %x, %thread, 12;
sub.u64 %in, %in, %x;
mad.wide.u32 %out, %thread, 4, %out;
{loads}
{a_loads if self.registers else ""}
ld.global.b32 %meta, [%in+{in_bytes + d_bytes}];
fence.proxy.async.shared::cta;
bar.sync 0;
and.b32 %r, %cta, 1;
setp.eq.u32 %p, %r, 0;
shr.u32 %r, %base, 4;
cvt.u64.u32 %x, %r;
add.u64 %da, %x, {self.layout_a.bits};
add.u64 %db, %x, {self.layout_b.bits + (A_BYTES >> 4)};
wgmma.fence.sync.aligned;
{body}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
{stores}
ret;
}}
"""
        data = []
        for kind_name in KINDS:
            seed = self.n + len(self.name)
            data += [
                image(self.a, kind_name, A_BYTES, seed),
                image(self.b, kind_name, self.b_bytes, seed + 1),
                image(self.d, kind_name, d_bytes, seed + 2),
                _metadata(self.a, seed),
            ]
        grid = len(KINDS)
        launch = Launch(
            "k", (grid, 1, 1), (THREADS, 1, 1), dynamic_smem_bytes=smem,
            params=(Param("input", "pointer", "in"), Param("output", "pointer", "out")),
            buffers=(
                Buffer("in", grid * (in_bytes + d_bytes + meta_bytes)),
                Buffer("out", grid * d_bytes, "out"),
            ),
        )  # fmt: skip
        parts = (Part(self.name, 0, grid * d_bytes, grid * 64 * self.n),)
        return Case(self.name, ptx, launch, {"in": np.concatenate(data)}, parts)

    def _instruction(self, step: int) -> str:
        registers = ", ".join(f"%d{i}" for i in range(self.num_registers))
        a = "{%a0, %a1, %a2, %a3}" if self.registers else "%da"
        sparse = self.selector >= 0
        tail = [f"%meta, {self.selector}"] if sparse else []
        tail.append(self.scale_d if step == 0 else "1")
        if self.d != "s32":
            tail += map(str, self.scales)
        if self.a in ("f16", "bf16"):
            tail += map(str, self.majors[1:] if self.registers else self.majors)
        saturate = ".satfinite" if self.saturate else ""
        operation = ".and.popc" if self.a == "b1" else ""
        advance = "add.u64 %da, %da, 2;\nadd.u64 %db, %db, 2;\n" if step else ""
        return (
            f"{advance}wgmma.mma_async{'.sp' if sparse else ''}.sync.aligned"
            f".m64n{self.n}k{self.k}.{self.d}.{self.a}"
            f".{self.b}{operation}{saturate} {{{registers}}}, {a}, %db, {', '.join(tail)};"
        )


_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 input, .param .u64 output)
{
.reg .b64 %in, %out, %x, %da, %db;
.reg .b32 %thread, %meta, %cta, %r, %to, %base, %a<4>;
.reg .pred %p, %q;
ld.param.u64 %in, [input];
ld.param.u64 %out, [output];
mov.u32 %thread, %tid.x;
mov.u32 %cta, %ctaid.x;"""

FLOAT_TYPES = (
    ("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"),
    *(product(("f32", "f16"), ("e4m3", "e5m2"), ("e4m3", "e5m2"))),
)  # fmt: skip
INTEGER_TYPES = (
    *(product(("s32",), ("s8", "u8"), ("s8", "u8"))), ("s32", "b1", "b1"),
)  # fmt: skip
INTEGER_N = (8, 16, 24, 32, *range(48, 257, 16))


def type_forms() -> Iterator[Wgmma]:
    """Every pair of types, A in shared memory and in registers, scales, saturation, chains."""
    for types in (*FLOAT_TYPES, *INTEGER_TYPES):
        for registers in (False, True):
            yield Wgmma(*types, 32, registers)
            yield Wgmma(*types, 8, registers, scale_d="%p")
        yield Wgmma(*types, 16, scale_d="0")
        yield Wgmma(*types, 16, True, scale_d="!%p")
        yield Wgmma(*types, 64, chain=4, layout_a=K128, layout_b=K128)
    for types in FLOAT_TYPES:
        for scales, registers in product(((-1, 1), (1, -1), (-1, -1)), (False, True)):
            yield Wgmma(*types, 24, registers, scales=scales)
    for types, registers in product(INTEGER_TYPES[:4], (False, True)):
        yield Wgmma(*types, 32, registers, saturate=True)
        yield Wgmma(*types, 32, registers, saturate=True, scale_d="0")


K128 = Layout(leading=16, stride=1024, swizzle=128)
"""K-major rows of 128 bytes, swizzled."""


def size_forms() -> Iterator[Wgmma]:
    """Every N of 8 to 256, the types and the place of A taking turns."""
    turns = cycle(product((*FLOAT_TYPES, *INTEGER_TYPES), (False, True)))
    for n in range(8, 257, 8):
        for types, registers in (next(turns) for _ in range(6)):
            if types[0] != "s32" or n in INTEGER_N:
                yield Wgmma(*types, n, registers)


def layout_forms() -> Iterator[Wgmma]:
    """Majorness, swizzles, strides, starts inside of an atom, base offsets."""
    for swizzle, start, base in product((32, 64, 128), (0, 16, 32, 144), (0, 1, 5)):
        k_major = Layout(start, 16, 8 * swizzle, swizzle, base)
        yield Wgmma("f32", "e4m3", "e5m2", 24, layout_a=k_major, layout_b=k_major)
    for swizzle, start in product((32, 64, 128), (0, 32)):
        k_major = Layout(start, 16, 8 * swizzle + 128, swizzle)
        yield Wgmma("f32", "tf32", "tf32", 40, layout_a=k_major, layout_b=k_major)
        yield Wgmma("s32", "u8", "s8", 32, True, layout_b=k_major)
    for swizzle, majors, types in product(
        (0, 32, 64, 128), ((1, 0), (0, 1), (1, 1)), (("f32", "bf16", "bf16"), ("f16",) * 3)
    ):
        span = swizzle or 16
        mn_a = Layout(0, span * 8 if swizzle else 1024, 1024 if swizzle else 128, swizzle)
        mn_b = Layout(0, span * 16, span * 8, swizzle)
        k_major = Layout(0, 128, 8 * swizzle if swizzle else 256, swizzle)
        yield Wgmma(
            *types, 48, majors=majors, layout_a=mn_a if majors[0] else k_major,
            layout_b=mn_b if majors[1] else k_major,
        )  # fmt: skip
        if majors == (0, 1):
            yield Wgmma(*types, 48, True, majors=majors, layout_b=mn_b)


def _metadata(a_type: str, seed: int) -> NDArray[np.uint8]:
    """A register of each thread: any two of every four places in order, or one of two of tf32."""
    choices = (0x4, 0xE) if a_type == "tf32" else (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)
    nibbles = np.random.default_rng(seed).choice(choices, (THREADS, 8)).astype(np.uint32)
    words = (nibbles << np.arange(0, 32, 4, dtype=np.uint32)).sum(1).astype(np.uint32)
    found: NDArray[np.uint8] = words.view(np.uint8)
    return found


def sparse_forms() -> Iterator[Wgmma]:
    """.sp: every pair of types, selectors, A in registers, swizzled B, MN-major B."""
    plain = Layout(0, 128, 512, 0)
    for types in (*FLOAT_TYPES, *INTEGER_TYPES[:4]):
        for registers in (False, True):
            yield Wgmma(*types, 24, registers, layout_b=plain, selector=0)
        if types[1] in ("f16", "bf16", "tf32"):
            yield Wgmma(*types, 8, layout_b=plain, selector=1)
            yield Wgmma(*types, 16, True, layout_b=plain, selector=1)
        yield Wgmma(*types, 128, layout_b=K128, selector=0)
        yield Wgmma(*types, 32, layout_b=Layout(0, 16, 512, 64), selector=0, scale_d="%p")
        if types[0] == "s32":
            yield Wgmma(*types, 32, layout_b=plain, selector=0, saturate=True)
        else:
            yield Wgmma(*types, 40, True, layout_b=plain, selector=0, scales=(-1, 1))
    for types in FLOAT_TYPES[:3]:
        mn_b = Layout(0, 2048, 1024, 128)
        yield Wgmma(*types, 64, majors=(0, 1), layout_b=mn_b, selector=1)


def all_forms() -> dict[str, list[Wgmma]]:
    """By family, each form in the first that has it."""
    families = {
        "types": type_forms(), "sizes": size_forms(), "layouts": layout_forms(),
        "sparse": sparse_forms(),
    }  # fmt: skip
    family_of: dict[Wgmma, str] = {}
    for family, forms in families.items():
        for form in forms:
            family_of.setdefault(form, family)
    return {name: [f for f, family in family_of.items() if family == name] for name in families}

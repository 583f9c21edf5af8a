"""Instruction forms of single threads for the hardware cases: a frame, operand values, a case.

A form is one line: the class of its result (h, r, x, f, e or p for 16, 32, 64 bits, f32, f64, a
predicate), a colon, PTX with `$` for the result. Operands: %a0..%a2 (.b64), %r0..%r2 (.b32),
%h0..%h2 (.b16), %f0..%f2 and %e0..%e2 (the same bits as floats), %p0 (bit 0 of the third).
"""

from collections.abc import Sequence

import numpy as np
from hardware_runs import Case, Part
from numpy.typing import NDArray

from ptxgen.launch import Buffer, Launch, Param

NUM_THREADS = 256
SPECIAL_VALUES: dict[str, list[int]] = {
    "int": [0, 1, 2, 3, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
            0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, 0x7FFFFFFFFFFFFFFF,
            0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF80000000],
    "f32": [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x40000000, 0x3F000000,
            0x3FC00000, 0x4B000001, 0x4B7FFFFF, 0x4F000000, 0x4EFFFFFF, 0x4F800000, 0x5F000000,
            0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0x477FE000, 0x477FF000,
            0x38800000, 0x387FFFFF, 0x33800000, 0x33000000, 0x33000001, 0x43E00000, 0x43E80000,
            0x43F00000, 0x47600000, 0x47700000, 0x3C800000, 0x3A800000, 0x3F801000, 0x3F803000],
    "f16": [0, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x3BFF, 0x4000, 0x3800, 0x3E00, 0x7BFF, 0x7C00,
            0x7E00, 0x7C01, 0x7FFF, 0x6400, 0x77FF, 0x5F00, 0x5F80, 0x2000, 0x1C00, 0x0200,
            0x7FF7, 0x7FF6, 0x7FFE],
    "bf16": [0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x3F7F, 0x4000, 0x3F00, 0x3FC0, 0x7F7F, 0x7F80,
             0x7FC0, 0x7F81, 0x7FFF, 0x4F00, 0x4300, 0x43E0, 0x4760, 0x7FF7, 0x7FF6, 0x7FFE],
    "f64": [0, 1, 0xFFFFFFFFFFFFF, 0x10000000000000, 0x3FF0000000000000, 0x3FF0000000000001,
            0x3FE0000000000000, 0x4000000000000000, 0x41E0000000000000, 0x43E0000000000000,
            0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001,
            0x47EFFFFFE0000000, 0x47EFFFFFF0000000, 0x36A0000000000000, 0x3810000000000000,
            0x3FF0000010000000, 0x3FF0000030000000],
}  # fmt: skip
"""Bit patterns at the edges of each format; those of floats are used with both signs."""
_BITS = {"int": 64, "f32": 32, "f16": 16, "bf16": 16, "f64": 64}
_CLASSES = {"h": ".b16", "r": ".b32", "x": ".b64", "f": ".f32", "e": ".f64", "p": ".pred"}
_TO_64 = {
    "h": "cvt.u64.u16 %o, %y;", "r": "cvt.u64.u32 %o, %y;", "x": "mov.b64 %o, %y;",
    "f": "mov.b32 %z, %y; cvt.u64.u32 %o, %z;", "e": "mov.b64 %o, %y;",
    "p": "selp.u64 %o, 1, 0, %y;",
}  # fmt: skip
"""The result %y as the 64-bit %o."""


def operands(kind: str, seed: int) -> NDArray[np.uint64]:
    """Shape (3, NUM_THREADS): special values first, then near ones, then random bits."""
    rng = np.random.default_rng(seed)
    bits = _BITS[kind]
    special = np.array(SPECIAL_VALUES[kind], np.uint64)
    if kind != "int":
        special = np.concatenate([special, special | np.uint64(1 << bits - 1)])
    values = rng.integers(0, 2**64, (3, NUM_THREADS), np.uint64)
    half = NUM_THREADS // 2
    values[:, :half] = rng.choice(special, (3, half))
    if kind != "int":
        # Near each other, so that sums cancel and round.
        near = slice(half, half + NUM_THREADS // 4)
        one = np.uint64(SPECIAL_VALUES[kind][4])
        values[:, near] = one ^ (values[:, near] >> np.uint64(64 - bits + {16: 4}.get(bits, 7)))
    if bits < 64:
        values &= np.uint64((1 << bits) - 1)
    if bits == 16:
        values |= rng.permuted(values, axis=1) << np.uint64(16)
    return values


def scalar_case(name: str, kind: str, forms: Sequence[str], seed: int = 1) -> Case:
    """One kernel that applies every form to NUM_THREADS operand triples."""
    body = []
    for index, form in enumerate(forms):
        result, text = form.split(":", 1)
        body.append(
            f"{{ .reg {_CLASSES[result]} %y; .reg .b32 %z;\n{text.strip().replace('$', '%y')}\n"
            f"{_TO_64[result]} st.global.u64 [%out+{index * NUM_THREADS * 8}], %o; }}"
        )
    ptx = f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 input, .param .u64 output)
{{
.reg .b64 %in, %out, %o, %a<3>;
.reg .b32 %t, %r<3>;
.reg .b16 %h<3>;
.reg .f32 %f<3>;
.reg .f64 %e<3>;
.reg .pred %p0;
ld.param.u64 %in, [input];
ld.param.u64 %out, [output];
mov.u32 %t, %tid.x;
mad.wide.u32 %in, %t, 8, %in;
mad.wide.u32 %out, %t, 8, %out;
{LOADS}
and.b32 %t, %r2, 1;
setp.ne.u32 %p0, %t, 0;
{chr(10).join(body)}
ret;
}}
"""
    nbytes = NUM_THREADS * 8
    launch = Launch(
        "k", (1, 1, 1), (NUM_THREADS, 1, 1),
        params=(Param("input", "pointer", "in"), Param("output", "pointer", "out")),
        buffers=(Buffer("in", 3 * nbytes), Buffer("out", len(forms) * nbytes, "out")),
    )  # fmt: skip
    parts = tuple(Part(f, i * nbytes, nbytes, NUM_THREADS) for i, f in enumerate(forms))
    return Case(name, ptx, launch, {"in": operands(kind, seed)}, parts)


LOADS = "\n".join(
    f"ld.global.u64 %a{i}, [%in+{i * NUM_THREADS * 8}]; cvt.u32.u64 %r{i}, %a{i}; "
    f"cvt.u16.u64 %h{i}, %a{i}; mov.b32 %f{i}, %r{i}; mov.b64 %e{i}, %a{i};"
    for i in range(3)
)
"""How a thread gets its operands: a line for each of the three."""

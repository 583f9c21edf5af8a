"""The 32-bit instruction descriptor of tcgen05.mma: types, shape, majorness, scale selectors.

Source: PTX ISA 9.0, "Instruction Descriptor" and "Matrix Shape" of tcgen05.mma.
"""

from dataclasses import dataclass
from functools import lru_cache

from ptxgen.errors import EmulationError

KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
_F8F6F4 = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_TYPES: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "bf16"}, "tf32": {2: "tf32"}, "f8f6f4": _F8F6F4,
    "i8": {0: "u8", 1: "s8"}, "mxf8f6f4": _F8F6F4, "mxf4": {1: "e2m1"}, "mxf4nvf4": {1: "e2m1"},
}  # fmt: skip
_D_TYPES = {0: "f16", 1: "f32", 2: "s32"}


@dataclass(frozen=True)
class InstructionDescriptor:
    """A decoded descriptor."""

    kind: str
    m: int
    n: int
    a_type: str
    b_type: str
    d_type: str
    negate_a: bool = False
    negate_b: bool = False
    mn_major_a: bool = False
    mn_major_b: bool = False
    saturate: bool = False
    sparse: bool = False
    sparsity_selector: int = 0
    scale_type: str = ""
    """ue8m0 or ue4m3 of the block-scaled kinds."""
    scale_a_id: int = 0
    scale_b_id: int = 0
    """Byte of the scale words at which an instruction's scales start."""
    k96: bool = False


@lru_cache(maxsize=1024)
def decode_instruction(kind: str, bits: int) -> InstructionDescriptor:
    """The fields of the descriptor of an instruction of `kind`.

    Raises: EmulationError for reserved bits, types that the kind lacks, or transposes it forbids.
    """
    scaled = kind.startswith("mx")
    four_bit = kind in ("mxf4", "mxf4nvf4")
    reserved = _RESERVED_FOUR_BIT if four_bit else _RESERVED_SCALED if scaled else _RESERVED
    if bits & reserved:
        raise EmulationError(
            f"tcgen05.mma kind::{kind}: instruction descriptor {bits:#010x} has reserved bits "
            f"{bits & reserved:#x} set"
        )
    a_type = _TYPES[kind].get(bits >> 7 & 7)
    b_type = _TYPES[kind].get(bits >> 10 & (3 if four_bit else 7))
    d_type = "f32" if scaled else _D_TYPES.get(bits >> 4 & 3)
    legal_d = {"i8": ("s32",), "f16": ("f32", "f16"), "f8f6f4": ("f32", "f16")}.get(kind, ("f32",))
    if a_type is None or b_type is None or d_type not in legal_d:
        raise EmulationError(
            f"tcgen05.mma kind::{kind}: instruction descriptor {bits:#010x} names types D "
            f"{bits >> 4 & 3}, A {bits >> 7 & 7}, B {bits >> 10 & 7}, which the kind does not have"
        )
    assert d_type is not None
    if d_type == "f16" and "bf16" in (a_type, b_type):
        raise EmulationError("tcgen05.mma kind::f16: an f16 accumulator needs f16 inputs, got bf16")
    if kind == "f16" and a_type != b_type:
        raise EmulationError(
            f"tcgen05.mma kind::f16: A and B must have one type, got {a_type}, {b_type}"
        )
    mn_major = bool(bits >> 15 & 1), bool(bits >> 16 & 1)
    if four_bit and any(mn_major):
        raise EmulationError(f"tcgen05.mma kind::{kind}: operands must be K-major")
    for name, transposed in ((a_type, mn_major[0]), (b_type, mn_major[1])):
        if transposed and name in ("e2m3", "e3m2", "e2m1"):
            raise EmulationError(f"tcgen05.mma: {name} operands must be K-major")
    m = (bits >> 27 & 3) << 7 if scaled else (bits >> 24 & 31) << 4
    return InstructionDescriptor(
        kind, m, (bits >> 17 & 63) << 3, a_type, b_type, d_type,
        bool(bits >> 13 & 1), bool(bits >> 14 & 1), *mn_major,
        saturate=not scaled and bool(bits >> 3 & 1),
        sparse=bool(bits >> 2 & 1),
        sparsity_selector=0 if scaled else bits & 3,
        scale_type=("ue8m0" if bits >> 23 & 1 else "ue4m3") if scaled else "",
        scale_a_id=bits >> 29 & 3 if scaled else 0,
        scale_b_id=bits >> 4 & 3 if scaled else 0,
        k96=four_bit and bool(bits >> 31 & 1),
    )  # fmt: skip


_RESERVED = 1 << 6 | 1 << 23 | 1 << 29
_RESERVED_SCALED = 0b11 | 1 << 3 | 1 << 6 | 7 << 24 | 1 << 31
_RESERVED_FOUR_BIT = 0b11 | 1 << 3 | 1 << 6 | 1 << 12 | 7 << 24


def check_shape(descriptor: InstructionDescriptor, cta_group: int, ws: bool) -> None:
    """Check M and N of an instruction.

    Raises: EmulationError naming the legal values.
    """
    d = descriptor
    scaled = d.kind.startswith("mx")
    if ws:
        legal_m: tuple[int, ...] = (32, 64, 128)
        legal_n = d.n in (64, 128, 256)
        text = "64, 128 or 256"
    elif cta_group == 1:
        legal_m = (128,) if scaled else (64, 128)
        legal_n, text = d.n % 8 == 0 and 8 <= d.n <= 256, "a multiple of 8 in [8, 256]"
        if d.kind == "i8" and d.n > 32:
            legal_n, text = legal_n and d.n % 16 == 0, "8, 16, 24, 32 or a multiple of 16"
    else:
        legal_m = (256,) if scaled and d.sparse else (128, 256)
        step = 32 if d.kind == "i8" else 16
        legal_n, text = d.n % step == 0 and step <= d.n <= 256, f"a multiple of {step} up to 256"
    if d.m not in legal_m or not legal_n:
        raise EmulationError(
            f"tcgen05.mma{'.ws' if ws else ''}.cta_group::{cta_group}.kind::{d.kind}: M must be "
            f"one of {legal_m} and N {text}, got M {d.m}, N {d.n}"
        )

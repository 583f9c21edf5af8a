"""Matrix and instruction descriptors of wgmma and tcgen05, field by field.

Source: PTX ISA 9.0, Matrix Descriptor Format, Tensorcore 5th generation Instruction Descriptor.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ptxgen.errors import ArgumentError, not_one_of

MATRIX_VERSIONS = ("sm_90", "sm_100")
INSTRUCTION_KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
"""`.kind` of tcgen05.mma: the same bits mean different things."""


@dataclass(frozen=True)
class Field:
    """One field of a descriptor."""

    name: str
    bits: str
    """Highest and lowest bit, `13:0`, or one bit."""
    raw: int
    meaning: str
    """The value in words, with its unit."""
    ok: bool = True
    """False where the value is reserved or illegal; `meaning` then says what must hold."""


_Meaning = Callable[[int], str]
_ILLEGAL = "illegal: "


def decode_matrix_descriptor(value: int, version: str | None = None) -> list[Field]:
    """The fields of a 64-bit shared-memory matrix descriptor, lowest bits first.

    `version` is sm_90 (wgmma) or sm_100 (tcgen05); by default bits 48:46 tell.

    Raises: ArgumentError for more than 64 bits or an unknown version.
    """
    _check_width(value, 64)
    if version is None:
        version = "sm_100" if value >> 46 & 7 == 1 else "sm_90"
    if version not in MATRIX_VERSIONS:
        raise ArgumentError(not_one_of("version", version, MATRIX_VERSIONS))
    word = _Word(value)
    word.read("start address", 13, 0, _bytes)
    word.reserved(15, 14)
    absolute = version == "sm_100" and value >> 52 & 1
    leading = "leading byte offset" if not absolute else "address of the continuing tile"
    word.read(leading, 29, 16, _bytes)
    word.reserved(31, 30)
    word.read("stride byte offset", 45, 32, _bytes)
    if version == "sm_90":
        word.reserved(48, 46)
    else:
        word.read("descriptor version", 48, 46, _one_of({1: "sm_100"}, "must be 1"))
    word.read("base offset", 51, 49, lambda v: f"{v} rows of 128 B" if v else "aligned pattern")
    if version == "sm_90":
        word.reserved(61, 52)
        swizzles = {0: "no swizzle", 1: "128B swizzle", 2: "64B swizzle", 3: "32B swizzle"}
        word.read("swizzle", 63, 62, _one_of(swizzles, ""))
    else:
        modes = {0: "offset from the start", 1: "absolute address (sm_103a, K = 96)"}
        word.read("leading offset mode", 52, 52, _one_of(modes, ""))
        word.reserved(60, 53)
        layouts = {
            0: "no swizzle", 1: "128B swizzle of 32-byte atoms", 2: "128B swizzle",
            4: "64B swizzle", 6: "32B swizzle",
        }  # fmt: skip
        word.read("swizzle", 63, 61, _one_of(layouts, "must be 0, 1, 2, 4 or 6"))
    return word.fields


def decode_instruction_descriptor(value: int, kind: str) -> list[Field]:
    """The fields of a 32-bit tcgen05 instruction descriptor of `.kind::kind`, lowest bits first.

    Raises: ArgumentError for more than 32 bits or an unknown kind.
    """
    _check_width(value, 32)
    if kind not in INSTRUCTION_KINDS:
        raise ArgumentError(not_one_of("kind", kind, INSTRUCTION_KINDS))
    word = _Word(value)
    if kind.startswith("mx"):
        _read_block_scaled(word, kind)
    else:
        _read_plain(word, kind)
    return word.fields


def _read_plain(word: "_Word", kind: str) -> None:
    """Kinds f16, tf32, f8f6f4 and i8."""
    selects = kind in ("f16", "tf32")
    word.read(
        "sparsity selector", 1, 0,
        str if selects else _one_of({0: "0"}, f"must be 0 for kind {kind}"),
    )  # fmt: skip
    word.read("sparse", 2, 2, _yes_no)
    saturates = "must be 0, only kind i8 saturates"
    word.read("saturate", 3, 3, _yes_no if kind == "i8" else _one_of({0: "no"}, saturates))
    d_types, rule = _D_TYPES[kind], f"must be {_listed(_D_TYPES[kind])}"
    if kind == "f16" and word.value >> 7 & 0b111111:
        d_types, rule = {1: "f32"}, "must be 1 (f32) unless A and B are f16"
    word.read("D type", 5, 4, _one_of(d_types, rule))
    word.reserved(6, 6)
    types = _TYPES[kind]
    word.read("A type", 9, 7, _one_of(types, f"must be {_listed(types)}"))
    word.read("B type", 12, 10, _one_of(types, f"must be {_listed(types)}"))
    negates = _yes_no if kind != "i8" else _one_of({0: "no"}, "must be 0 for kind i8")
    word.read("negate A", 13, 13, negates)
    word.read("negate B", 14, 14, negates)
    word.read("A order", 15, 15, _order)
    word.read("B order", 16, 16, _order)
    word.read("N", 22, 17, _n)
    word.reserved(23, 23)
    word.read("M", 28, 24, lambda v: _m(v << 4, (32, 64, 128, 256)))
    word.reserved(29, 29)
    shifts = {0: "none", 1: "8 rows", 2: "16 rows", 3: "32 rows"}
    word.read("largest shift in B (.ws)", 31, 30, _one_of(shifts, ""))


def _read_block_scaled(word: "_Word", kind: str) -> None:
    """Kinds mxf8f6f4, mxf4 and mxf4nvf4: D is always f32."""
    fp4 = kind != "mxf8f6f4"
    id_rule = _one_of({0: "0", 2: "2"}, f"must be 0 or 2 for kind {kind}") if fp4 else str
    word.reserved(1, 0)
    word.read("sparse", 2, 2, _yes_no)
    word.reserved(3, 3)
    word.read("scale B byte", 5, 4, id_rule)
    word.reserved(6, 6)
    types = _TYPES[kind]
    word.read("A type", 9, 7, _one_of(types, f"must be {_listed(types)}"))
    word.read("B type", 11 if fp4 else 12, 10, _one_of(types, f"must be {_listed(types)}"))
    if fp4:
        word.reserved(12, 12)
    word.read("negate A", 13, 13, _yes_no)
    word.read("negate B", 14, 14, _yes_no)
    order = _one_of({0: "K-major"}, f"must be 0: kind {kind} is K-major only") if fp4 else _order
    word.read("A order", 15, 15, order)
    word.read("B order", 16, 16, order)
    word.read("N", 22, 17, _n)
    scale_types = {1: "ue8m0"} if kind in ("mxf8f6f4", "mxf4") else {0: "ue4m3", 1: "ue8m0"}
    word.read("scale type", 23, 23, _one_of(scale_types, f"must be {_listed(scale_types)}"))
    word.reserved(26, 24)
    word.read("M", 28, 27, lambda v: _m(v << 7, (128, 256)))
    word.read("scale A byte", 30, 29, id_rule)
    if fp4:
        word.read("K", 31, 31, _one_of({0: "64 dense, 128 sparse", 1: "96 dense (sm_103a)"}, ""))
    else:
        word.reserved(31, 31)


_F8F6F4 = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_TYPES: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "bf16"}, "tf32": {2: "tf32"}, "f8f6f4": _F8F6F4,
    "i8": {0: "u8", 1: "s8"}, "mxf8f6f4": _F8F6F4, "mxf4": {1: "e2m1"}, "mxf4nvf4": {1: "e2m1"},
}  # fmt: skip
_D_TYPES: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "f32"}, "tf32": {1: "f32"}, "f8f6f4": {0: "f16", 1: "f32"},
    "i8": {2: "s32"},
}  # fmt: skip


class _Word:
    """A descriptor that is being read."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.fields: list[Field] = []

    def read(self, name: str, high: int, low: int, meaning: _Meaning) -> None:
        raw = self.value >> low & ((1 << (high - low + 1)) - 1)
        text = meaning(raw)
        bits = f"{high}:{low}" if high != low else str(low)
        self.fields.append(Field(name, bits, raw, text, not text.startswith(_ILLEGAL)))

    def reserved(self, high: int, low: int) -> None:
        self.read("reserved", high, low, _one_of({0: "0"}, "must be 0"))


def _check_width(value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise ArgumentError(
            f"the descriptor must be an unsigned {bits}-bit number, got {value:#x}; try "
            f"{value & (1 << bits) - 1:#x}"
        )


def _bytes(raw: int) -> str:
    return f"{raw << 4} B"


def _yes_no(raw: int) -> str:
    return "yes" if raw else "no"


def _order(raw: int) -> str:
    return "MN-major" if raw else "K-major"


def _n(raw: int) -> str:
    n = raw << 3
    return str(n) if 8 <= n <= 256 else f"{_ILLEGAL}N is {n}, must be 8 to 256"


def _m(m: int, legal: tuple[int, ...]) -> str:
    if m in legal:
        return str(m)
    return f"{_ILLEGAL}M is {m}, must be {', '.join(map(str, legal))}"


def _listed(values: dict[int, str]) -> str:
    return ", ".join(f"{raw} ({name})" for raw, name in values.items())


def _one_of(names: dict[int, str], rule: str) -> _Meaning:
    return lambda raw: names.get(raw, f"{_ILLEGAL}{rule}")

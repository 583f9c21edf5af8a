"""The emulator's 128-byte tensor map: encode, decode, and the fields of tensormap.replace.

The driver's encoding is not documented. Ours puts every field where one H200 driver was seen to
put it, so that maps can be compared; what was not seen (3-D and 5-D
im2col corners, swizzle atoms) has places of our own in words 7 and 15.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ptxgen.emulator.tensor_map_fields import Field, get, put
from ptxgen.errors import EmulationError, LaunchError
from ptxgen.launch import INTERLEAVES, L2_PROMOTIONS, SWIZZLES, TensorMap
from ptxgen.tensor_map_rules import (
    PACKED_BITS,
    SWIZZLE_SPAN_BYTES,
    check_tensor_map,
    element_bits,
)

TENSOR_MAP_BYTES = 128

TYPE_NUMBERS: dict[str, int] = {
    "uint8": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6,
    "float32": 7, "float32_ftz": 8, "float64": 9, "bfloat16": 10, "tfloat32": 11,
    "tfloat32_ftz": 12, "16u4_align8b": 13, "16u4_align16b": 14, "16u6_align16b": 15,
}  # fmt: skip
"""Element type -> number of tensormap.replace (not of the driver's enumeration)."""
_TYPES = {number: name for name, number in TYPE_NUMBERS.items()}
_MODES = {"none": (0, 0), "32B": (1, 0), "64B": (2, 0), "128B": (3, 0), "128B_ATOM_32B": (3, 1),
          "128B_ATOM_32B_FLIP_8B": (3, 2), "128B_ATOM_64B": (3, 3)}  # fmt: skip
"""Swizzle -> (swizzle_mode, swizzle_atomicity) of tensormap.replace."""
_SWIZZLES = {mode: name for name, mode in _MODES.items()}
assert tuple(_MODES) == SWIZZLES


@dataclass(frozen=True)
class Im2col:
    """What an im2col map has instead of a box. Tuples run W, H, D."""

    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]
    channels: int
    """Channels per pixel."""
    pixels: int
    """Pixels per column."""


@dataclass(frozen=True)
class DecodedMap:
    """A tensor map with its absolute address; dimension 0 is contiguous."""

    address: int
    element_type: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    """Of dimensions 1.."""
    box: tuple[int, ...]
    """Empty for im2col."""
    element_strides: tuple[int, ...]
    swizzle: str = "none"
    interleave: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "zero"
    im2col: Im2col | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def element_bits(self) -> int:
        """Bits of one element in global memory."""
        return element_bits(self.element_type)


def from_launch(tensor_map: TensorMap, address: int) -> DecodedMap:
    """`tensor_map` with its view at the absolute `address`.

    Raises: LaunchError if cuTensorMapEncodeTiled would refuse it.
    """
    check_tensor_map(tensor_map, address)
    m = tensor_map
    return DecodedMap(
        address, m.element_type, m.dims, m.strides_bytes, m.box,
        m.element_strides or (1,) * len(m.dims), m.swizzle, m.interleave, m.l2_promotion,
        m.oob_fill,
    )  # fmt: skip


def encode_launch_map(tensor_map: TensorMap, buffer_address: int) -> bytes:
    """The 128 bytes of a launch's tensor map; zeros for a map without buffer.

    Raises: LaunchError.
    """
    if tensor_map.buffer is None:
        return bytes(TENSOR_MAP_BYTES)
    return encode(from_launch(tensor_map, buffer_address + tensor_map.offset_bytes))


def encode(decoded: DecodedMap) -> bytes:
    """The 128-byte form of a map."""
    words = [0] * 16
    for field, value in _fields_of(decoded):
        put(words, field, value)
    return b"".join(word.to_bytes(8, "little") for word in words)


def decode(data: bytes) -> DecodedMap:
    """The map that 128 bytes hold.

    Raises: EmulationError for bytes that were never encoded, or hold an illegal map; the hardware
        stops with CUDA_ERROR_ILLEGAL_INSTRUCTION (715).
    """
    return _decode(bytes(data))


def replace(data: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """The 128 bytes after tensormap.replace of one field.

    `field` is the instruction's name: global_address, rank, box_dim, global_dim, global_stride,
    element_stride, elemtype, interleave_layout, swizzle_mode, swizzle_atomicity, fill_mode.
    Raises: EmulationError for an unknown field.
    """
    words = _words(data)
    if field == "global_address":
        put(words, Field(0, 0, 64), value)
    elif field == "rank":
        put(words, _RANK, value)
    elif field == "elemtype":
        _put_type(words, value)
    elif field == "global_stride":
        put(words, _STRIDE_LOW[ordinal], value >> 4 & 0xFFFFFFFF)
        put(words, _STRIDE_HIGH[ordinal], value >> 36)
    elif field == "global_dim":
        put(words, _DIM[ordinal], value - 1)
    elif field == "box_dim":
        put(words, _BOX[ordinal], value - 1)
    elif field == "element_stride":
        put(words, _ELEMENT_STRIDE[ordinal], value - 1)
    elif field in _SIMPLE_FIELDS:
        put(words, _SIMPLE_FIELDS[field], value)
    else:
        raise EmulationError(f"tensormap.replace: no field {field!r}")
    return b"".join(word.to_bytes(8, "little") for word in words)


_IM2COL, _RANK, _TYPE = Field(1, 0, 1), Field(1, 4, 3), Field(1, 7, 4)
_INTERLEAVE, _SWIZZLE, _NAN = Field(1, 11, 2), Field(1, 13, 2), Field(1, 15, 1)
_TF32, _L2 = Field(1, 16, 1), Field(1, 17, 2)
_ATOMICITY = Field(15, 0, 2)
_STRIDE_LOW = (Field(1, 32, 32), Field(2, 0, 32), Field(2, 32, 32), Field(3, 0, 32))
_STRIDE_HIGH = tuple(Field(3, 32 + 4 * i, 4) for i in range(4))
_DIM = tuple(Field(4 + i // 2, 32 * (i % 2), 32) for i in range(5))
_ELEMENT_STRIDE = tuple(Field(6, 32 + 3 * i, 3) for i in range(5))
_BOX = (Field(6, 56, 8), *(Field(7, 8 * i, 8) for i in range(4)))
_PIXELS = Field(7, 32, 10)
_BOX_BYTES, _PERIOD = Field(8, 0, 32), Field(9, 0, 32)
_CORNER_BITS = {3: 16, 4: 8, 5: 5}
"""Bits of one im2col corner by rank; the upper corners follow the lower ones at bit 16."""
_SIMPLE_FIELDS = {
    "interleave_layout": _INTERLEAVE,
    "swizzle_mode": _SWIZZLE,
    "swizzle_atomicity": _ATOMICITY,
    "fill_mode": _NAN,
}


def _put_type(words: list[int], number: int) -> None:
    # tf32 is float32 with a flag beside it
    tf32 = number in (11, 12)
    put(words, _TF32, int(tf32))
    put(words, _TYPE, number - 4 if tf32 else number)


def _fields_of(m: DecodedMap) -> Iterator[tuple[Field, int]]:
    yield Field(0, 0, 64), m.address
    yield _RANK, m.rank - 1
    number = TYPE_NUMBERS[m.element_type]
    yield _TF32, int(number in (11, 12))
    yield _TYPE, number - 4 if number in (11, 12) else number
    yield _INTERLEAVE, INTERLEAVES.index(m.interleave)
    mode, atomicity = _MODES[m.swizzle]
    yield _SWIZZLE, mode
    yield _ATOMICITY, atomicity
    yield _NAN, int(m.oob_fill == "nan")
    yield _L2, L2_PROMOTIONS.index(m.l2_promotion)
    for i, stride in enumerate(m.strides_bytes):
        yield _STRIDE_LOW[i], stride >> 4 & 0xFFFFFFFF
        yield _STRIDE_HIGH[i], stride >> 36
    for i, extent in enumerate(m.dims):
        yield _DIM[i], extent - 1
        yield _ELEMENT_STRIDE[i], m.element_strides[i] - 1
    moved = m.box or (1,)
    if m.im2col is None:
        for i, extent in enumerate(m.box):
            yield _BOX[i], extent - 1
        moved = tuple(b // s for b, s in zip(m.box, m.element_strides, strict=True))
    else:
        yield _IM2COL, 1
        yield _BOX[0], m.im2col.channels - 1
        yield _PIXELS, m.im2col.pixels - 1
        bits = _CORNER_BITS[m.rank]
        corners = zip(m.im2col.lower_corner, m.im2col.upper_corner, strict=True)
        for i, (lower, upper) in enumerate(corners):
            yield Field(7, bits * i, bits), lower
            yield Field(7, 16 + bits * i, bits), upper
        moved = (m.im2col.channels, m.im2col.pixels)
    yield _BOX_BYTES, prod(moved) * m.element_bits // 8
    yield _PERIOD, (16, 256, 512, 1024)[mode]


@lru_cache(maxsize=4096)
def _decode(data: bytes) -> DecodedMap:
    if not any(data):
        raise EmulationError(
            "the tensor map is all zero: it was never encoded (the hardware reports 715). Give the "
            "launch a tensor map for this parameter, or write one before using it"
        )
    words = _words(data)
    rank = get(words, _RANK) + 1
    number = get(words, _TYPE) + (4 if get(words, _TF32) else 0)
    strides = tuple(
        (get(words, _STRIDE_LOW[i]) | get(words, _STRIDE_HIGH[i]) << 32) << 4
        for i in range(min(rank, 5) - 1)
    )
    im2col = _decode_im2col(words, rank) if get(words, _IM2COL) else None
    interleave = get(words, _INTERLEAVE)
    swizzle = _SWIZZLES.get((get(words, _SWIZZLE), get(words, _ATOMICITY)))
    if rank > 5 or number not in _TYPES or interleave > 2 or swizzle is None:
        raise EmulationError(
            f"these 128 bytes are not a tensor map (rank {rank}, type {number}, interleave "
            f"{interleave}, swizzle {swizzle}); was the map copied whole, and 64-byte aligned?"
        )
    decoded = DecodedMap(
        get(words, Field(0, 0, 64)),
        _TYPES[number],
        tuple(get(words, _DIM[i]) + 1 for i in range(rank)),
        strides,
        () if im2col else tuple(get(words, _BOX[i]) + 1 for i in range(rank)),
        tuple(get(words, _ELEMENT_STRIDE[i]) + 1 for i in range(rank)),
        swizzle,
        INTERLEAVES[interleave],
        L2_PROMOTIONS[get(words, _L2)],
        "nan" if get(words, _NAN) else "zero",
        im2col,
    )
    if im2col is None:
        _check(decoded)
    else:
        _check_im2col(decoded, im2col)
    return decoded


def _decode_im2col(words: list[int], rank: int) -> Im2col:
    if rank not in _CORNER_BITS:
        raise EmulationError(f"an im2col tensor map must have rank 3, 4 or 5, got {rank}")
    bits = _CORNER_BITS[rank]

    def corner(first: int) -> tuple[int, ...]:
        raw = [get(words, Field(7, first + bits * i, bits)) for i in range(rank - 2)]
        return tuple(value - (1 << bits) if value >> (bits - 1) else value for value in raw)

    return Im2col(corner(0), corner(16), get(words, _BOX[0]) + 1, get(words, _PIXELS) + 1)


def _check(m: DecodedMap) -> None:
    as_launched = TensorMap(
        "map", 0, m.element_type, m.dims, m.strides_bytes, m.box, m.element_strides, m.swizzle,
        m.interleave, m.l2_promotion, m.oob_fill,
    )  # fmt: skip
    try:
        check_tensor_map(as_launched, m.address)
    except LaunchError as error:
        raise EmulationError(f"{error} (in 128 bytes that the kernel wrote or changed)") from error


def _check_im2col(m: DecodedMap, column: Im2col) -> None:
    row_bytes = column.channels * m.element_bits // 8
    span = SWIZZLE_SPAN_BYTES.get(m.swizzle, row_bytes)
    if m.element_type in PACKED_BITS or row_bytes % 16 or row_bytes > span or m.address % 16:
        raise EmulationError(
            "an im2col map needs whole bytes per element, a 16-byte aligned address and a multiple "
            f"of 16 bytes of channels within the swizzle span, got {m.element_type} x "
            f"{column.channels}, swizzle {m.swizzle}, address {m.address:#x}"
        )


def _words(data: bytes) -> list[int]:
    if len(data) != TENSOR_MAP_BYTES:
        raise EmulationError(f"a tensor map has {TENSOR_MAP_BYTES} bytes, got {len(data)}")
    return [int.from_bytes(data[8 * i : 8 * i + 8], "little") for i in range(16)]

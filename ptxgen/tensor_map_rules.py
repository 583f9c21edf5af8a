"""What cuTensorMapEncodeTiled accepts, as one pure check that needs no driver.

Source: CUDA 13.0 driver API, cuTensorMapEncodeTiled; accepted limits measured on an H200.
"""

from math import gcd, prod

from ptxgen.errors import LaunchError, not_one_of
from ptxgen.launch import (
    INTERLEAVES,
    L2_PROMOTIONS,
    OOB_FILLS,
    SWIZZLES,
    TENSOR_MAP_TYPES,
    TensorMap,
)

PACKED_BITS = {"16u4_align8b": 4, "16u4_align16b": 4, "16u6_align16b": 6}
"""Bits of one element of the types that are smaller than a byte."""
FLOAT_TYPES = (
    "float16", "float32", "float64", "bfloat16", "float32_ftz", "tfloat32", "tfloat32_ftz",
)  # fmt: skip
SWIZZLE_SPAN_BYTES = {name: 32 if name == "32B" else 64 if name == "64B" else 128
                      for name in SWIZZLES if name != "none"}  # fmt: skip
"""Largest inner box in bytes, and the row pitch in shared memory."""
MAX_BOX_BYTES = 232448
"""All shared memory of a CTA. The driver's own limit lies between 128 KiB and 256 KiB."""


def element_bits(element_type: str) -> int:
    """Bits of one element in global memory."""
    return PACKED_BITS.get(element_type) or 8 * TENSOR_MAP_TYPES[element_type]


def check_tensor_map(tensor_map: TensorMap, address: int) -> None:
    """Check `tensor_map` placed at the absolute global `address` (offset included).

    Raises: LaunchError with the first rule that it breaks.
    """
    m = tensor_map
    rank = len(m.dims)
    _choice("element_type", m.element_type, tuple(TENSOR_MAP_TYPES))
    _choice("swizzle", m.swizzle, SWIZZLES)
    _choice("interleave", m.interleave, INTERLEAVES)
    _choice("l2_promotion", m.l2_promotion, L2_PROMOTIONS)
    _choice("oob_fill", m.oob_fill, OOB_FILLS)
    _need(1 <= rank <= 5, f"must have 1 to 5 dims, got {rank}; try {'several maps' if rank else 1}")
    _need(
        len(m.box) == rank,
        f"box must have {rank} entries as dims has, got {m.box}; try one for each",
    )
    _need(
        len(m.strides_bytes) == rank - 1,
        f"strides_bytes must have {rank - 1} entries (dimension 0 is contiguous), "
        f"got {m.strides_bytes}; try one for each of dims[1:]",
    )
    _need(
        len(m.element_strides) in (0, rank),
        f"element_strides must have {rank} entries or none, got {m.element_strides}; try none",
    )
    _need(
        m.interleave == "none" or rank >= 3,
        f"interleave={m.interleave} needs at least 3 dims, got {rank}; try none",
    )
    packed16 = m.element_type in ("16u4_align16b", "16u6_align16b")
    alignment = 32 if m.interleave == "32B" or packed16 else 16
    _need(
        address % alignment == 0,
        f"the view must start at a multiple of {alignment} B, got address {address:#x} "
        f"(offset_bytes={m.offset_bytes}); try an aligned copy",
    )
    for i, extent in enumerate(m.dims):
        hint = "try 1" if extent < 1 else "try several maps"
        _need(1 <= extent <= 1 << 32, f"dims[{i}] must be in [1, 2^32], got {extent}; {hint}")
    _check_packed_extents(m)
    for i, stride in enumerate(m.strides_bytes):
        _need(
            stride % alignment == 0 and 0 <= stride < 1 << 40,
            f"strides_bytes[{i}] must be a multiple of {alignment} below 2^40, got {stride}; "
            "try padded rows",
        )
    for i, extent in enumerate(m.box):
        hint = "try 1" if extent < 1 else "try more boxes"
        _need(1 <= extent <= 256, f"box[{i}] must be in [1, 256], got {extent}; {hint}")
    for i, stride in enumerate(m.element_strides):
        _need(1 <= stride <= 8, f"element_strides[{i}] must be in [1, 8], got {stride}; try 1")
    _check_inner_box(m)
    box_bytes = prod(m.box) * element_bits(m.element_type) // 8
    _need(
        box_bytes <= MAX_BOX_BYTES,
        f"a box must fit shared memory ({MAX_BOX_BYTES} B), got {m.box} = {box_bytes} B; try "
        "smaller boxes",
    )
    _need(
        m.oob_fill == "zero" or m.element_type in FLOAT_TYPES,
        f"oob_fill=nan needs a floating element type, got {m.element_type}; try zero",
    )


def _check_packed_extents(m: TensorMap) -> None:
    if m.element_type in ("16u4_align16b", "16u6_align16b"):
        _need(
            m.dims[0] % 128 == 0,
            f"{m.element_type} needs dims[0] to be a multiple of 128, got {m.dims[0]}; "
            f"try {-(-m.dims[0] // 128) * 128}",
        )
        _need(m.box[0] == 128, f"{m.element_type} needs box[0] = 128, got {m.box[0]}; try 128")
        allowed = ("none", "128B", "128B_ATOM_32B") + (
            ("128B_ATOM_64B",) if m.element_type == "16u6_align16b" else ()
        )
        _choice(f"swizzle of {m.element_type}", m.swizzle, allowed)
        _need(
            m.interleave == "none",
            f"{m.element_type} needs interleave=none, got {m.interleave}; try none",
        )
    elif m.element_type == "16u4_align8b":
        _need(
            m.dims[0] % 2 == 0,
            f"16u4_align8b needs an even dims[0], got {m.dims[0]}; try {m.dims[0] + 1}",
        )


def _check_inner_box(m: TensorMap) -> None:
    packed16 = m.element_type in ("16u4_align16b", "16u6_align16b")
    if m.interleave != "none":
        _need(
            m.interleave != "32B" or m.swizzle == "32B",
            f"interleave=32B needs swizzle=32B, got {m.swizzle}; try 32B",
        )
        return
    inner_bits = m.box[0] * element_bits(m.element_type)
    unit = 128 // gcd(128, element_bits(m.element_type))
    _need(
        inner_bits % 128 == 0,
        f"box[0] must be a multiple of 16 bytes, got {m.box[0]} {m.element_type} = "
        f"{inner_bits / 8:g} B; try {-(-m.box[0] // unit) * unit}",
    )
    if m.swizzle == "none" or packed16:
        return
    span = SWIZZLE_SPAN_BYTES[m.swizzle]
    _need(
        inner_bits // 8 <= span,
        f"swizzle={m.swizzle} allows an inner box of {span} B, got {m.box[0]} {m.element_type} = "
        f"{inner_bits // 8} B; try more boxes or a wider swizzle",
    )


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise LaunchError(not_one_of(f"tensor map: {name}", value, allowed))


def _need(holds: bool, message: str) -> None:
    if not holds:
        raise LaunchError(f"tensor map: {message}")

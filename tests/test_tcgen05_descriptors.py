"""Descriptors of tcgen05 against three other readings: PTX examples, our decoder, CuTe layouts."""

import itertools

import pytest

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.inspection.descriptor_fields import (
    decode_instruction_descriptor,
    decode_matrix_descriptor,
)
from ptxgen.layout import OperandTile
from ptxgen.tcgen05_descriptors import (
    BlockScaledDescriptor,
    InstructionDescriptor,
    SmemDescriptor,
)

tensor_layouts = pytest.importorskip("tensor_layouts")


def test_instruction_descriptor_of_bf16_128x128_is_the_published_word() -> None:
    descriptor = InstructionDescriptor("f16", "bf16", "bf16", "f32", 128, 128)
    assert descriptor.encode() == 0x08200490


def test_smem_descriptor_has_the_version_bits_of_tcgen05() -> None:
    word = SmemDescriptor(0, 1024, "128B", 0x400).encode()
    assert word == 2 << 61 | 1 << 46 | 64 << 32 | 0x40


def test_an_offset_that_is_no_multiple_of_16_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"stride byte offset.*multiple of 16"):
        SmemDescriptor(0, 1000, "128B").encode()


@pytest.mark.parametrize("m", [64, 128, 256])
@pytest.mark.parametrize(
    ("kind", "a", "b", "d"),
    [("f16", "f16", "f16", "f32"), ("tf32", "tf32", "tf32", "f32"), ("i8", "u8", "s8", "s32"),
     ("f8f6f4", "e4m3", "e2m1", "f32"), ("f8f6f4", "e2m3", "e3m2", "f16")],
)  # fmt: skip
def test_decoder_reads_back_what_was_encoded(kind: str, a: str, b: str, d: str, m: int) -> None:
    word = InstructionDescriptor(kind, a, b, d, m, 48, a_k_major=False).encode()
    found = {f.name: f.meaning for f in decode_instruction_descriptor(word, kind)}
    assert (found["A type"].lower(), found["B type"].lower()) == (a, b)
    assert found["D type"].lower() == d
    assert (found["M"], found["N"]) == (str(m), "48")
    assert (found["A order"], found["B order"]) == ("MN-major", "K-major")


@pytest.mark.parametrize(("kind", "a"), [("mxf8f6f4", "e3m2"), ("mxf4", "e2m1")])
def test_decoder_reads_back_block_scaled_fields(kind: str, a: str) -> None:
    word = BlockScaledDescriptor(kind, a, "e2m1", "ue8m0", 256, 96, sfa_id=2, sfb_id=2).encode()
    found = {f.name: f.meaning for f in decode_instruction_descriptor(word, kind)}
    assert (found["A type"].lower(), found["B type"].lower()) == (a, "e2m1")
    assert (found["M"], found["N"]) == ("256", "96")
    assert {found["scale A byte"], found["scale B byte"]} == {"2"}


def _swizzle(name: str) -> object:
    """CuTe's swizzle over byte addresses: of 16-byte chunks, or of 32-byte atoms."""
    if name == "none":
        return lambda address: address
    shape = {"32B": (1, 4, 3), "64B": (2, 4, 3), "128B": (3, 4, 3), "128B_ATOM_32B": (2, 5, 2)}
    return tensor_layouts.Swizzle(*shape[name])


def _tma_image(tile: OperandTile) -> dict[int, tuple[int, int]]:
    """First byte address of each element of the tile as TMA lays it out: address -> (row, k)."""
    swizzle, width, image = _swizzle(tile.swizzle), tile.dtype.bytes, {}
    inner, outer = tile.box
    for slice_index, copy in itertools.product(range(tile.slices), tile.copies):
        for i, o in itertools.product(range(inner), range(outer)):
            linear = (
                copy.smem_offset + slice_index * tile.slice_bytes + o * tile.pitch_bytes + i * width
            )
            row, k = (o, i) if tile.k_major else (i, o)
            row += copy.row_offset + slice_index * tile.slice_rows
            k += copy.k_offset + slice_index * tile.slice_k
            image[swizzle(linear)] = (row, k)  # type: ignore[operator]
    return image


def _canonical(tile: OperandTile) -> object:
    """CuTe's canonical layout of one MMA's operand, (row, k) -> byte offset before the swizzle.

    Built from the descriptor's own fields, as the hardware does. Source: the comments on canonical
    layouts in CUTLASS, mma_sm100_desc.hpp.
    """
    width, swizzle = tile.dtype.bytes, tile.swizzle_bytes
    word = SmemDescriptor(
        tile.descriptor.leading_bytes, tile.descriptor.stride_bytes, tile.swizzle
    ).encode()
    fields = {f.name: f.raw for f in decode_matrix_descriptor(word)}
    leading = 16 * fields["leading byte offset"]
    stride = 16 * fields["stride byte offset"]
    unit, mma_k = 16 // width, 32 // width
    if tile.k_major:
        shape = ((8, tile.rows // 8), (unit, mma_k // unit))
        pitch = swizzle or 16
        strides = ((pitch, stride), (width, 16 if swizzle else leading))
    else:
        chunk = (swizzle or 16) // width
        rows = tile.num_chunks
        group = 4 if tile.swizzle == "128B_ATOM_32B" else 8
        shape = ((chunk, rows), (group, mma_k // group))
        pitch = swizzle or 16
        chunk_step, k_step = (leading, stride) if swizzle else (stride, leading)
        strides = ((width, chunk_step), (pitch, k_step))
    return tensor_layouts.Layout(shape, strides)


TILES = [
    OperandTile(dtype(name), k_major, swizzle, rows, (swizzle or 128) // dtype(name).bytes, slices)
    for name, k_major, swizzle, rows, slices in itertools.product(
        ("bf16", "e4m3", "tf32", "e2m1"), (True, False), (0, 32, 64, 128), (64, 128), (1, 2)
    )
    if k_major or name in ("bf16", "e4m3") or (name == "tf32" and swizzle == 128)
    if name != "e2m1" or swizzle == 128
]


@pytest.mark.parametrize(
    "tile", TILES,
    ids=lambda t: f"{t.dtype}-{'k' if t.k_major else 'mn'}-{t.swizzle_bytes}-{t.rows}/{t.slices}",
)  # fmt: skip
def test_mma_finds_each_element_where_tma_put_it(tile: OperandTile) -> None:
    swizzle, image, layout = _swizzle(tile.swizzle), _tma_image(tile), _canonical(tile)
    for step in range(tile.k // tile.mma_k):
        start = step * tile.k_step_bytes
        for row, k in itertools.product(range(tile.rows), range(tile.mma_k)):
            if tile.k_major:
                unit = 16 // tile.dtype.bytes
                place = (row % 8, row // 8), (k % unit, k // unit)
            else:
                chunk = (tile.swizzle_bytes or 16) // tile.dtype.bytes
                group = 4 if tile.swizzle == "128B_ATOM_32B" else 8
                place = (row % chunk, row // chunk), (k % group, k // group)
            address = swizzle(start + layout(*place))  # type: ignore[operator]
            assert image[address] == (row, step * tile.mma_k + k)

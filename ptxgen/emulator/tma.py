"""TMA: boxes of tensor maps between global and shared memory.

A box travels as dense bytes of shape (rows, inner bytes): one row per combination of the outer
box indices, dimension 1 fastest. Reading, placing, taking and writing are separate steps, so that
a multicast reads once and an asynchronous copy can be split where a schedule wants it.
Source: PTX ISA 9.0, "Tensors" and cp.async.bulk.tensor; behaviour measured
on an H200: docs/hardware-findings.md.
"""

from collections.abc import Sequence

import numpy as np

from ptxgen.emulator.box import (
    Box,
    BoxShape,
    Selection,
    box_shape,
    check_coordinates,
    check_store,
    four_rows,
    origin_of_whole_box,
    select,
    select_store,
    smem_index,
)
from ptxgen.emulator.formats import round_tf32
from ptxgen.emulator.global_memory import GlobalMemory
from ptxgen.emulator.memory import MemoryBlock, SharedMemory
from ptxgen.emulator.reductions import reduce_values
from ptxgen.emulator.tensor_map import DecodedMap
from ptxgen.errors import EmulationError

NAN_FILL = 0x7FF7
"""Halves of what oob_fill=nan writes, whatever the element type. Measured on an H200."""


def read_box(tensor_map: DecodedMap, coordinates: Sequence[int], memory: GlobalMemory) -> Box:
    """Load a box from global memory; elements outside the tensor become the fill value.

    Raises: EmulationError (check_coordinates), OutOfBoundsError when the tensor itself reaches
        beyond its allocation.
    """
    check_coordinates(tensor_map, coordinates)
    shape = box_shape(tensor_map)
    origin = origin_of_whole_box(tensor_map, shape, coordinates)
    if origin is not None:
        assert shape.row_chunks is not None
        block = memory.block(origin, shape.global_span)
        chunks = block.u128[shape.row_chunks + (origin - block.base >> 4)]
        return _convert(tensor_map, chunks.view(np.uint8).reshape(shape.rows, -1))
    selection = select(tensor_map, shape, coordinates, shape.row_steps)
    return _read(tensor_map, shape, selection, memory)


def write_box(
    tensor_map: DecodedMap, coordinates: Sequence[int], memory: GlobalMemory, box: Box
) -> None:
    """Store a box to global memory; what lies past the end of the tensor is not written.

    Along the inner dimension the end is rounded up to 16 bytes from the start of the row.
    Raises: EmulationError (check_coordinates; negative coordinates, 715), OutOfBoundsError where a
        row that is not a multiple of 16 bytes ends with its allocation.
    """
    shape, selection = select_store(tensor_map, coordinates)
    origin = origin_of_whole_box(tensor_map, shape, coordinates)
    if origin is not None:
        assert shape.row_chunks is not None
        block = memory.block(origin, shape.global_span)
        chunks = shape.row_chunks + (origin - block.base >> 4)
        block.u128[chunks] = np.ascontiguousarray(box).view("V16").ravel()
        if block.initialised is not None:
            block.initialised.reshape(-1, 16)[chunks] = True
        return
    store_rows(selection, memory, box)


def store_rows(found: Selection, memory: GlobalMemory, box: Box) -> None:
    """Write the rows of a box that are inside, each to the end of a 16-byte unit.

    Raises: OutOfBoundsError.
    """
    for block, offset, row, first, last in _pieces(found.in_units(), memory):
        block.u8[offset + first : offset + last] = box[row, first:last]
        if block.initialised is not None:
            block.initialised[offset + first : offset + last] = True


def reduce_box(
    tensor_map: DecodedMap,
    coordinates: Sequence[int],
    memory: GlobalMemory,
    box: Box,
    operation: str,
) -> None:
    """cp.reduce.async.bulk.tensor: combine a box with global memory, element by element.

    `operation` is add, min, max, inc, dec, and, or, xor; the element type is the map's. Rows end
    where those of a store do: at a 16-byte unit.
    Raises: as write_box, and EmulationError for a type without that operation.
    """
    _, selection = select_store(tensor_map, coordinates)
    reduce_rows(tensor_map, selection, memory, box, operation)


def reduce_rows(
    tensor_map: DecodedMap, found: Selection, memory: GlobalMemory, box: Box, operation: str
) -> None:
    """Combine the rows of a box that are inside with global memory.

    Raises: EmulationError for a type without that operation, OutOfBoundsError.
    """
    kind = _REDUCE_TYPES.get(tensor_map.element_type)
    if kind is None or (kind == "s64" and operation not in ("min", "max")):
        raise EmulationError(
            f"TMA cannot reduce elements of type {tensor_map.element_type} by .{operation} "
            "(the hardware reports 715)"
        )
    flush = tensor_map.element_type == "float32_ftz"
    for block, offset, row, first, last in _pieces(found.in_units(), memory):
        old = block.u8[offset + first : offset + last]
        new = np.ascontiguousarray(box[row, first:last])
        old[:] = reduce_values(operation, kind, old, new, flush=flush)


def place_box(tensor_map: DecodedMap, box: Box, smem: SharedMemory, offset: int) -> None:
    """Write a box to shared memory at `offset`, swizzled; the gaps of a narrow box stay.

    Raises: MisalignedError below 128-byte alignment (716), OutOfBoundsError.
    """
    m = tensor_map
    index = smem_index(m, box.shape[0], box.shape[1], smem, offset)
    if m.swizzle == "128B_ATOM_32B_FLIP_8B":
        smem.views[8][index] = np.ascontiguousarray(box).view(np.uint64).ravel()
    else:
        smem.u128[index] = np.ascontiguousarray(box).view("V16").ravel()
    if smem.initialised is not None:
        unit = 8 if m.swizzle == "128B_ATOM_32B_FLIP_8B" else 16
        smem.initialised.reshape(-1, unit)[index] = True


def take_box(tensor_map: DecodedMap, smem: SharedMemory, offset: int) -> Box:
    """Read the box of a store from shared memory at `offset`, undoing the swizzle.

    Raises: MisalignedError below 128-byte alignment (716), OutOfBoundsError.
    """
    m = tensor_map
    shape = box_shape(m)
    index = smem_index(m, shape.rows, shape.smem_row_bytes, smem, offset)
    if m.swizzle == "128B_ATOM_32B_FLIP_8B":
        units = smem.views[8][index].view(np.uint8)
    else:
        units = smem.u128[index].view(np.uint8)
    dense: Box = units.reshape(shape.rows, shape.smem_row_bytes)
    if m.element_type == "16u6_align16b":
        return pack_slots(dense, 12)
    if m.element_type == "16u4_align16b":
        raise EmulationError("16u4_align16b maps cannot be stored from shared memory")
    return dense


def gather_rows(tensor_map: DecodedMap, coordinates: Sequence[int], memory: GlobalMemory) -> Box:
    """tile::gather4: four rows of a 2-D map, coordinates {column, row0, row1, row2, row3}.

    Raises: EmulationError, OutOfBoundsError.
    """
    shape, steps = four_rows(tensor_map, coordinates)
    selection = select(tensor_map, shape, (coordinates[0], 0), steps)
    return _read(tensor_map, shape, selection, memory)


def scatter_rows(
    tensor_map: DecodedMap, coordinates: Sequence[int], memory: GlobalMemory, box: Box
) -> None:
    """tile::scatter4: the inverse of gather_rows, clipped.

    Raises: EmulationError, OutOfBoundsError.
    """
    shape, steps = four_rows(tensor_map, coordinates)
    check_store(tensor_map, coordinates, scatter=True)
    selection = select(tensor_map, shape, (coordinates[0], 0), steps)
    store_rows(selection, memory, box)


def take_rows(tensor_map: DecodedMap, smem: SharedMemory, offset: int) -> Box:
    """Read the four rows of a scatter4 from shared memory.

    Raises: MisalignedError, OutOfBoundsError.
    """
    shape = box_shape(tensor_map)
    index = smem_index(tensor_map, 4, shape.smem_row_bytes, smem, offset)
    dense: Box = smem.u128[index].view(np.uint8).reshape(4, shape.smem_row_bytes)
    return dense


def unpack_slots(packed: Box, slot_bytes: int) -> Box:
    """Spread 16-element groups of `slot_bytes` over 16-byte slots, zero padded."""
    rows, nbytes = packed.shape
    slots = np.zeros((rows, nbytes // slot_bytes, 16), np.uint8)
    slots[:, :, :slot_bytes] = packed.reshape(rows, -1, slot_bytes)
    return slots.reshape(rows, -1)


def pack_slots(slots: Box, slot_bytes: int) -> Box:
    """The inverse of unpack_slots: drop the padding."""
    rows = slots.shape[0]
    return np.ascontiguousarray(slots.reshape(rows, -1, 16)[:, :, :slot_bytes]).reshape(rows, -1)


_REDUCE_TYPES = {
    "uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64", "float16": "f16",
    "bfloat16": "bf16", "float32": "f32", "float32_ftz": "f32", "float64": "f64",
}  # fmt: skip


def _read(m: DecodedMap, shape: BoxShape, found: Selection, memory: GlobalMemory) -> Box:
    whole = found.inside is None and found.last - found.first == shape.global_row_bytes
    if whole:
        low, high = int(found.sources.min()), int(found.sources.max()) + shape.global_row_bytes
        block = memory.block(low, high - low)
        chunks = shape.global_row_bytes // 16
        if shape.global_row_bytes % 16 == 0 and low % 16 == 0:
            index = (found.sources - block.base >> 4)[:, None] + np.arange(chunks)
            box: Box = block.u128[index].view(np.uint8)
        else:
            columns = np.arange(shape.global_row_bytes)
            box = block.u8[(found.sources - block.base)[:, None] + columns]
    else:
        box = np.zeros((shape.rows, shape.global_row_bytes), np.uint8)
        outside = np.ones(box.shape, bool)
        rows = np.arange(shape.rows) if found.inside is None else np.flatnonzero(found.inside)
        if len(rows) and found.last > found.first:
            sources = found.sources[rows] + found.first
            width = found.last - found.first
            low, high = int(sources.min()), int(sources.max()) + width
            block = memory.block(low, high - low)
            index = (sources - block.base)[:, None] + np.arange(width)
            box[rows, found.first : found.last] = block.u8[index]
            outside[rows, found.first : found.last] = False
        if m.oob_fill == "nan":
            # The fill is not converted.
            return np.where(outside, _nan_bytes(box), _convert(m, box))
    return _convert(m, box)


def _nan_bytes(box: Box) -> Box:
    return np.full((box.shape[0], box.shape[1] // 2), NAN_FILL, np.uint16).view(np.uint8)


def _convert(m: DecodedMap, box: Box) -> Box:
    if m.element_type in ("tfloat32", "tfloat32_ftz"):
        return round_tf32(box.view(np.uint32)).view(np.uint8)
    if m.element_type == "16u4_align16b":
        return unpack_slots(box, 8)
    if m.element_type == "16u6_align16b":
        return unpack_slots(box, 12)
    return box


def _pieces(found: Selection, memory: GlobalMemory) -> list[tuple[MemoryBlock, int, int, int, int]]:
    """(allocation, offset of the row in it, row, first byte, last byte) of each row inside."""
    if found.last <= found.first:
        return []
    rows = range(len(found.sources)) if found.inside is None else np.flatnonzero(found.inside)
    pieces = []
    for row in map(int, rows):
        source = int(found.sources[row])
        block = memory.block(source + found.first, found.last - found.first)
        pieces.append((block, source - block.base, row, found.first, found.last))
    return pieces

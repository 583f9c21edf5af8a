"""Where the bytes of a TMA box lie in global and in shared memory.

Source: PTX ISA 9.0, "Tensors"; behaviour measured on an H200: docs/hardware-findings.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.swizzle import PERIOD_BYTES, swizzle
from ptxgen.emulator.tensor_map import DecodedMap
from ptxgen.errors import EmulationError, MisalignedError, OutOfBoundsError
from ptxgen.tensor_map_rules import SWIZZLE_SPAN_BYTES

Box = NDArray[np.uint8]
"""Dense bytes of a box, shape (rows, inner bytes)."""
Offsets = NDArray[np.int64]

SMEM_ALIGNMENT = 128
"""Of a box in shared memory; anything less is error 716 on an H200."""
STORE_UNIT = 16
"""Bytes that a TMA store or reduction writes whole or not at all along the inner dimension; loads
fill element by element."""
_PERIOD = 1024
"""A multiple of every swizzle period."""


@dataclass(frozen=True)
class BoxShape:
    """What a map's boxes look like, wherever they lie. Sizes in bytes unless they say elements."""

    counts: tuple[int, ...]
    """Elements moved in each dimension: ceil(box / element stride), dimension 0 unstrided."""
    rows: int
    global_row_bytes: int
    """Of the inner dimension in global memory."""
    smem_row_bytes: int
    """The same in shared memory: larger for the padded sub-byte types."""
    pitch: int
    """From row to row in shared memory: the swizzle span, if there is one."""
    tx_bytes: int
    """What complete_tx counts: the payload of the full box, out of bounds or not."""
    row_steps: NDArray[np.int64]
    """Outer tensor coordinates relative to the box origin, shape (rows, rank - 1)."""
    row_sources: Offsets
    """Global byte offset of each row relative to the box origin, shape (rows,)."""
    row_chunks: NDArray[np.int64] | None
    """16-byte chunks of the whole box in global memory, relative to its origin, row by row; None
    when rows are not whole chunks, or overlap (so that writing them at once has no order)."""
    global_span: int
    """From the first to after the last byte of a box inside the tensor."""


@lru_cache(maxsize=1024)
def box_shape(tensor_map: DecodedMap) -> BoxShape:
    """The shape of the boxes of a tiled map.

    Raises: EmulationError for what is not emulated (interleaved layouts).
    """
    m = tensor_map
    if m.im2col is not None:
        raise EmulationError("this tensor map was encoded for im2col; a tile copy cannot use it")
    if m.interleave != "none":
        raise EmulationError(f"interleaved tensor maps ({m.interleave}) are not emulated")
    strides = (1, *m.element_strides[1:])
    counts = tuple(-(-b // s) for b, s in zip(m.box, strides, strict=True))
    axes = [np.arange(c) * s for c, s in zip(counts[1:], strides[1:], strict=True)]
    grids = np.meshgrid(*reversed(axes), indexing="ij")
    rows = prod(counts[1:])
    steps = np.zeros((rows, m.rank - 1), np.int64)
    for i, grid in enumerate(reversed(grids)):
        steps[:, i] = grid.ravel()
    return shape_of(m, counts, steps)


def shape_of(m: DecodedMap, counts: tuple[int, ...], steps: NDArray[np.int64]) -> BoxShape:
    global_row = counts[0] * m.element_bits // 8
    padded = m.element_type in ("16u4_align16b", "16u6_align16b")
    smem_row = counts[0] if padded else global_row
    sources = steps @ np.array(m.strides_bytes, np.int64) if m.rank > 1 else np.zeros(1, np.int64)
    chunks = None
    gaps = np.diff(np.sort(sources))
    if global_row % 16 == 0 and (gaps >= global_row).all():
        chunks = ((sources[:, None] + np.arange(0, global_row, 16)) >> 4).ravel()
    return BoxShape(
        counts, len(steps), global_row, smem_row, SWIZZLE_SPAN_BYTES.get(m.swizzle, smem_row),
        len(steps) * global_row, steps, sources, chunks, int(sources.max()) + global_row,
    )  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """Which bytes of a box lie inside the tensor."""

    sources: Offsets
    """Global address of each row's first byte, inside or not."""
    inside: NDArray[np.bool_] | None
    """Rows inside the tensor; None = all."""
    first: int
    last: int
    """Bytes [first, last) of a row that lie inside."""

    def in_units(self) -> "Selection":
        """What a store writes of it: rows end at a 16-byte unit, not at the tensor's last element.

        Source: measured on an H200 (63 columns of bf16: 128 bytes of each row were written).
        """
        width = -(-(self.last - self.first) // STORE_UNIT) * STORE_UNIT
        return Selection(self.sources, self.inside, self.first, self.first + width)

    @property
    def footprint(self) -> tuple[Offsets, int]:
        """Bytes of global memory: (addresses, size of each)."""
        rows = self.sources if self.inside is None else self.sources[self.inside]
        if self.last <= self.first:
            rows = rows[:0]
        return rows + self.first, self.last - self.first


def origin_of_whole_box(
    tensor_map: DecodedMap, shape: BoxShape, coordinates: Sequence[int]
) -> int | None:
    """Global address of a box that lies inside the tensor in every dimension; None if it does not,
    or if its rows cannot be copied by whole chunks."""
    m = tensor_map
    steps = (1, *m.element_strides[1:])
    if shape.row_chunks is None or m.address % 16:
        return None
    for c, n, s, d in zip(coordinates, shape.counts, steps, m.dims, strict=True):
        if c < 0 or c + (n - 1) * s >= d:
            return None
    origin = m.address + coordinates[0] * m.element_bits // 8
    for coordinate, stride in zip(coordinates[1:], m.strides_bytes, strict=True):
        origin += coordinate * stride
    return origin


def check_coordinates(tensor_map: DecodedMap, coordinates: Sequence[int]) -> None:
    """Check what TMA demands of the coordinates of any copy, innermost first.

    Raises: EmulationError where the hardware stops with 715: a wrong number of coordinates, or an
        inner coordinate that is not a multiple of 16 bytes.
    """
    m = tensor_map
    if len(coordinates) != m.rank:
        raise EmulationError(
            f"the copy has {len(coordinates)} coordinates, its tensor map has rank {m.rank}"
        )
    if m.element_type in ("16u4_align16b", "16u6_align16b"):
        if coordinates[0] % 128:
            raise EmulationError(
                f"the first coordinate of a {m.element_type} map must be a multiple of 128, "
                f"got {coordinates[0]}"
            )
    elif coordinates[0] * m.element_bits % 128:
        raise EmulationError(
            f"the first coordinate times the element size must be a multiple of 16 B, got "
            f"{coordinates[0]} x {m.element_bits // 8 or m.element_bits / 8} B (error 715); "
            "start boxes at 16-byte steps of the inner dimension"
        )


def check_store(
    tensor_map: DecodedMap, coordinates: Sequence[int], *, scatter: bool = False
) -> None:
    """Check the coordinates of a store or reduction; of a `scatter` they are column and four rows.

    Raises: EmulationError (check_coordinates; negative coordinates, 715).
    """
    check_coordinates(tensor_map, coordinates[:2] if scatter else coordinates)
    if min(coordinates) < 0:
        raise EmulationError(
            f"a TMA store needs coordinates >= 0, got {tuple(coordinates)} (error 715)"
        )


def select_store(tensor_map: DecodedMap, coordinates: Sequence[int]) -> tuple[BoxShape, Selection]:
    check_store(tensor_map, coordinates)
    shape = box_shape(tensor_map)
    return shape, select(tensor_map, shape, coordinates, shape.row_steps)


def select(
    m: DecodedMap, shape: BoxShape, coordinates: Sequence[int], steps: NDArray[np.int64]
) -> Selection:
    start = coordinates[0] * m.element_bits // 8
    inner = m.dims[0] * m.element_bits // 8
    first = min(max(-start, 0), shape.global_row_bytes)
    last = max(min(inner - start, shape.global_row_bytes), first)
    origin = m.address + start
    for coordinate, stride in zip(coordinates[1:], m.strides_bytes, strict=True):
        origin += coordinate * stride
    sources = shape.row_sources if steps is shape.row_steps else steps @ np.array(m.strides_bytes)
    outer, extents = coordinates[1:], m.dims[1:]
    strides = m.element_strides[1:]
    if steps is shape.row_steps and all(
        c >= 0 and c + (n - 1) * s < d
        for c, n, s, d in zip(outer, shape.counts[1:], strides, extents, strict=True)
    ):
        return Selection(sources + origin, None, first, last)
    at = steps + np.array(outer, np.int64)
    inside = np.asarray(((at >= 0) & (at < np.array(extents))).all(axis=1))
    return Selection(sources + origin, inside, first, last)


def four_rows(m: DecodedMap, coordinates: Sequence[int]) -> tuple[BoxShape, NDArray[np.int64]]:
    if m.rank != 2 or m.box[1] != 1 or len(coordinates) != 5:
        raise EmulationError(
            f"gather4 and scatter4 need a 2-D map with box[1] = 1 and 5 coordinates, got rank "
            f"{m.rank}, box {m.box} and {len(coordinates)} coordinates"
        )
    check_coordinates(m, coordinates[:2])
    steps = np.array(coordinates[1:], np.int64)[:, None]
    return shape_of(m, (m.box[0], 4), np.arange(4, dtype=np.int64)[:, None]), steps


def smem_footprint(
    tensor_map: DecodedMap, rows: int, row_bytes: int, offset: int
) -> tuple[Offsets, int]:
    """Bytes of a box in shared memory as (offsets, size of each piece).

    A swizzle permutes bytes within their 128-byte line, so whole lines make one piece.
    """
    m = tensor_map
    pitch = SWIZZLE_SPAN_BYTES.get(m.swizzle, row_bytes)
    if pitch == row_bytes and (m.swizzle == "none" or rows * pitch % 128 == 0):
        return np.array([offset], np.int64), rows * pitch
    unit = 8 if m.swizzle == "128B_ATOM_32B_FLIP_8B" else 16
    return _units(m.swizzle, rows, row_bytes, pitch, offset % _PERIOD) * unit + (
        offset - offset % _PERIOD
    ), unit


def smem_index(
    m: DecodedMap, rows: int, row_bytes: int, smem: SharedMemory, offset: int
) -> NDArray[np.int64]:
    if offset % SMEM_ALIGNMENT:
        raise MisalignedError(
            f"a TMA box needs {SMEM_ALIGNMENT}-byte alignment in shared memory, got offset "
            f"{offset:#x} (error 716)"
        )
    pitch = SWIZZLE_SPAN_BYTES.get(m.swizzle, row_bytes)
    span = (rows - 1) * pitch + row_bytes
    if offset < smem.first or offset + -(-span // 16) * 16 > smem.nbytes:
        raise OutOfBoundsError(
            f"a box of {rows} rows x {row_bytes} B (pitch {pitch} B) at shared offset {offset:#x} "
            f"must lie in [{smem.first:#x}, {smem.nbytes:#x})"
        )
    phase = offset % _PERIOD
    unit = 8 if m.swizzle == "128B_ATOM_32B_FLIP_8B" else 16
    return _units(m.swizzle, rows, row_bytes, pitch, phase) + (offset - phase) // unit


@lru_cache(maxsize=1024)
def _units(mode: str, rows: int, row_bytes: int, pitch: int, phase: int) -> NDArray[np.int64]:
    """Index, in copy units from the last multiple of 1024, of each unit of a dense box."""
    assert _PERIOD % PERIOD_BYTES[mode] == 0
    unit = 8 if mode == "128B_ATOM_32B_FLIP_8B" else 16
    linear = np.arange(rows, dtype=np.int64)[:, None] * pitch + np.arange(0, row_bytes, unit)
    index = swizzle(linear.ravel() + phase, mode) // unit
    index.flags.writeable = False
    return index

"""TMA in im2col mode: columns of pixels instead of boxes.

The start walks W, then H, then D, then N inside the bounding box [lower corner, extent - 1 + upper
corner]; each pixel is read at its position plus the instruction's offsets. Measured for 4-D maps
on an H200; 3-D and 5-D follow the same rule. Source: PTX ISA 9.0, "im2col mode".
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.box import Box, Offsets, Selection, check_coordinates
from ptxgen.emulator.global_memory import GlobalMemory
from ptxgen.emulator.tensor_map import DecodedMap, Im2col
from ptxgen.emulator.tma import NAN_FILL
from ptxgen.errors import EmulationError


def im2col_bytes(tensor_map: DecodedMap) -> int:
    """Bytes of one copy, and what complete_tx counts: pixels x channels, inside or not."""
    column = im2col_of(tensor_map)
    return column.pixels * column.channels * tensor_map.element_bits // 8


def read_im2col(
    tensor_map: DecodedMap,
    coordinates: Sequence[int],
    offsets: Sequence[int],
    memory: GlobalMemory,
) -> Box:
    """Load one column: dense bytes of shape (pixels, channels * element bytes).

    `coordinates` run C, W, H, D, N as far as the rank goes, `offsets` W, H, D.
    Raises: EmulationError (check_coordinates; a start outside the bounding box, 715),
        OutOfBoundsError.
    """
    m = tensor_map
    column = im2col_of(m)
    found = im2col_selection(m, coordinates, offsets)
    box = np.zeros((column.pixels, column.channels * m.element_bits // 8), np.uint8)
    if m.oob_fill == "nan":
        box.view(np.uint16)[:] = NAN_FILL
    if found.last > found.first and found.inside is not None:
        for row in np.flatnonzero(found.inside).tolist():
            source = int(found.sources[row]) + found.first
            box[row, found.first : found.last] = memory.read(source, found.last - found.first)
    return box


def check_im2col_store(tensor_map: DecodedMap, coordinates: Sequence[int]) -> None:
    """Check what a store or reduction (im2col_no_offs) demands beside what a load does.

    Raises: EmulationError for a bounding box or a start that leaves the tensor (715).
    """
    column = im2col_of(tensor_map)
    if min(column.lower_corner) < 0 or max(column.upper_corner) > 0 or min(coordinates) < 0:
        raise EmulationError(
            "an im2col store needs corners inside the tensor (lower >= 0, upper <= 0) and "
            f"coordinates >= 0, got {column.lower_corner}, {column.upper_corner}, "
            f"{tuple(coordinates)}"
        )


def im2col_selection(
    tensor_map: DecodedMap, coordinates: Sequence[int], offsets: Sequence[int]
) -> Selection:
    """Which bytes of a column lie inside the tensor: a row for each pixel.

    Raises: EmulationError.
    """
    m = tensor_map
    sources, inside = im2col_pixels(m, coordinates, offsets)
    size, start = m.element_bits // 8, coordinates[0]
    width = im2col_of(m).channels * size
    first = min(max(-start, 0) * size, width)
    last = max(min((m.dims[0] - start) * size, width), first)
    return Selection(sources, inside, first, last)


def im2col_pixels(
    tensor_map: DecodedMap, coordinates: Sequence[int], offsets: Sequence[int]
) -> tuple[Offsets, NDArray[np.bool_]]:
    """(global address of each pixel's first channel, whether the pixel lies in the tensor).

    Raises: EmulationError.
    """
    m = tensor_map
    column = im2col_of(m)
    check_coordinates(m, coordinates)
    if len(offsets) != m.rank - 2:
        raise EmulationError(
            f"an im2col copy of rank {m.rank} has {m.rank - 2} offsets, got {len(offsets)}"
        )
    # mixed-radix counting over the bounding box, W fastest, N unbounded
    remaining = np.arange(column.pixels, dtype=np.int64)
    address = np.full(column.pixels, m.address + coordinates[0] * m.element_bits // 8, np.int64)
    inside = np.ones(column.pixels, bool)
    for i, (start, offset) in enumerate(zip(coordinates[1:-1], offsets, strict=True)):
        low, step = column.lower_corner[i], m.element_strides[1 + i]
        high = m.dims[1 + i] - 1 + column.upper_corner[i]
        if start < low:
            raise EmulationError(
                f"an im2col copy must start at or after its lower corner {low} in dimension "
                f"{i + 1}, got {start} (error 715)"
            )
        first_run = max(-(-(high - start + 1) // step), 1)
        later_run = max(-(-(high - low + 1) // step), 1)
        carried = np.where(remaining < first_run, 0, 1 + (remaining - first_run) // later_run)
        at = np.where(
            carried == 0, start + remaining * step,
            low + (remaining - first_run) % later_run * step,
        )  # fmt: skip
        remaining = carried
        at = at + offset
        inside &= (at >= 0) & (at < m.dims[1 + i])
        address += at * m.strides_bytes[i]
    image = coordinates[-1] + remaining
    inside &= (image >= 0) & (image < m.dims[-1])
    return address + image * m.strides_bytes[-1], inside


def im2col_of(tensor_map: DecodedMap) -> Im2col:
    """What an im2col map has instead of a box.

    Raises: EmulationError for a map of tiles.
    """
    if tensor_map.im2col is None:
        raise EmulationError("this tensor map was encoded for tiles; an im2col copy cannot use it")
    return tensor_map.im2col

"""TMA in im2col mode against a walk pixel by pixel."""

from typing import Any

import numpy as np
import pytest
from tensor_boxes import RNG

from ptxgen.emulator.global_memory import GlobalMemory
from ptxgen.emulator.tensor_map import DecodedMap, Im2col
from ptxgen.emulator.tma_im2col import read_im2col
from ptxgen.errors import EmulationError


def im2col_reference(
    m: DecodedMap,
    memory: GlobalMemory,
    coordinates: tuple[int, int, int, int],
    offsets: tuple[int, int],
) -> Any:
    """Walk pixel by pixel: W, then H, then D, then N."""
    assert m.im2col is not None
    spatial = m.dims[1:-1]
    low = m.im2col.lower_corner
    high = [d - 1 + u for d, u in zip(spatial, m.im2col.upper_corner, strict=False)]
    at, image, rows = list(coordinates[1:-1]), coordinates[-1], []
    for _ in range(m.im2col.pixels):
        pixel = [a + o for a, o in zip(at, offsets, strict=False)] + [image]
        row = []
        for channel in range(m.im2col.channels):
            where = [coordinates[0] + channel, *pixel]
            inside = all(0 <= a < d for a, d in zip(where, m.dims, strict=False))
            address = m.address + where[0]
            address += sum(a * s for a, s in zip(where[1:], m.strides_bytes, strict=False))
            row.append(memory.load_int(address, 1) if inside else 0)
        rows.append(row)
        for i in range(len(at)):
            at[i] += m.element_strides[1 + i]
            if at[i] <= high[i]:
                break
            at[i] = low[i]
        else:
            image += 1
    return np.array(rows, np.uint8)


@pytest.mark.parametrize(
    ("lower", "upper", "start", "offsets", "strides"),
    [((0, 0), (0, 0), (0, 0, 0, 0), (0, 0), (1, 1)),
     ((-1, -1), (-1, -1), (16, -1, -1, 0), (2, 1), (1, 1)),
     ((-1, 0), (1, -2), (0, 3, 2, 1), (0, 2), (2, 1)),
     ((-2, -1), (0, 1), (16, 4, 1, 1), (1, 1), (1, 2))],
)  # fmt: skip
def test_im2col_walks_width_first_inside_its_corners(
    lower: tuple[int, int],
    upper: tuple[int, int],
    start: tuple[int, int, int, int],
    offsets: tuple[int, int],
    strides: tuple[int, int],
) -> None:
    memory = GlobalMemory()
    dims, spatial_strides = (32, 6, 5, 2), (1, *strides, 1)
    address = memory.allocate(32 * 6 * 5 * 2)
    memory.write(address, RNG.integers(0, 256, 1920, np.uint8))
    m = DecodedMap(
        address, "uint8", dims, (32, 192, 960), (), spatial_strides,
        im2col=Im2col(lower, upper, 16, 40),
    )  # fmt: skip
    got = read_im2col(m, start, offsets, memory)
    assert np.array_equal(got, im2col_reference(m, memory, start, offsets))


def test_im2col_start_below_the_lower_corner_faults() -> None:
    memory = GlobalMemory()
    m = DecodedMap(
        memory.allocate(1920), "uint8", (32, 6, 5, 2), (32, 192, 960), (), (1, 1, 1, 1),
        im2col=Im2col((0, 0), (0, 0), 16, 8),
    )  # fmt: skip
    with pytest.raises(EmulationError, match="lower corner"):
        read_im2col(m, (0, -1, 0, 0), (0, 0), memory)

"""tcgen05.cp (shared memory to tensor memory) and tcgen05.shift.

Not run on hardware. Source: PTX ISA 9.0, "tcgen05.cp", "tcgen05.shift"; geometry from
CUTLASS 4.7, cute/atom/copy_traits_sm100.hpp.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.formats import unpack_slot_codes
from ptxgen.emulator.matrix_descriptor import decode_sm100, gather_operand, operand_chunks
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.tmem import COLUMNS, TensorMemory, lane_of
from ptxgen.errors import EmulationError, UnknownInstructionError

_SHAPES = {"128x256b": (128, 32), "128x128b": (128, 16), "4x256b": (4, 32), "64x128b": (64, 16),
           "32x128b": (32, 16)}  # fmt: skip
"""Source rows and bytes per row."""


def copy_to_tmem(
    descriptor: int, address: int, shape: str, multicast: str, smem: SharedMemory,
    tmem: TensorMemory, *, packed: str = "",
) -> None:  # fmt: skip
    """tcgen05.cp in one CTA (cta_group::2: once in each, from its own shared memory).

    `multicast`: warpx2::02_13 or warpx2::01_23 for 64x128b, warpx4 for 32x128b, else empty.
    `packed`: b6x16_p32 or b4x16_p64 unpacks 6- and 4-bit elements to one byte each, the latter to
    bits 5:2, where the f8f6f4 kinds want them.
    Raises: OutOfBoundsError, EmulationError, UnknownInstructionError.
    """
    rows, nbytes = _shape(shape, multicast)
    raw = gather_operand(decode_sm100(descriptor), smem, rows, nbytes, 1, mn_major=False)
    if packed:
        raw = unpack_slot_codes(raw, packed)
        raw = raw << 2 if packed == "b4x16_p64" else raw
    words = np.ascontiguousarray(raw).view(np.uint32)
    for source, cells in _targets(shape, multicast, address, tmem):
        tmem.cells.reshape(-1)[cells] = words[source]
        if tmem.initialised is not None:
            tmem.initialised.reshape(-1)[cells] = True


def copy_reads(
    descriptor: int, shape: str, multicast: str, smem: SharedMemory
) -> NDArray[np.int64]:
    """Offsets of the 16-byte pieces of shared memory that tcgen05.cp reads.

    Raises: OutOfBoundsError, UnknownInstructionError.
    """
    rows, nbytes = _shape(shape, multicast)
    matrix = decode_sm100(descriptor)
    return operand_chunks(matrix, smem, rows, nbytes, 1, mn_major=False) * 16


def copy_cells(address: int, shape: str, multicast: str, tmem: TensorMemory) -> NDArray[np.intp]:
    """Cells (lane * 512 + column) that tcgen05.cp writes."""
    targets = _targets(shape, multicast, address, tmem)
    return np.concatenate([cells.ravel() for _, cells in targets])


def shift_down(address: int, tmem: TensorMemory) -> None:
    """tcgen05.shift.down: in each group of 32 lanes, lanes 1.. take over the 8 columns of the lane
    before them.

    The direction and the groups stand only in a figure of the PTX text that we have not seen: a
    B200 would settle it. Raises: EmulationError, OutOfBoundsError.
    """
    lane, column = lane_of(address), address & 0xFFFF
    if lane % 32:
        raise EmulationError(f"tcgen05.shift needs a lane that is a multiple of 32, got {lane}")
    tmem.require(column, column + 8, "tcgen05.shift")
    quarters = tmem.cells.reshape(4, 32, COLUMNS)[lane // 32 :, :, column : column + 8]
    quarters[:, 1:] = quarters[:, :-1].copy()


def shift_cells(address: int) -> NDArray[np.intp]:
    """Cells (lane * 512 + column) that tcgen05.shift reads and writes."""
    lanes = np.arange(lane_of(address), 128)
    return (lanes[:, None] * COLUMNS + (address & 0xFFFF) + np.arange(8)).ravel()


def _shape(shape: str, multicast: str) -> tuple[int, int]:
    legal = {"64x128b": ("warpx2::02_13", "warpx2::01_23"), "32x128b": ("warpx4",)}
    if shape not in _SHAPES or multicast not in legal.get(shape, ("",)):
        raise UnknownInstructionError(f"tcgen05.cp has no form .{shape}.{multicast}")
    return _SHAPES[shape]


def _targets(
    shape: str, multicast: str, address: int, tmem: TensorMemory
) -> list[tuple[slice, NDArray[np.intp]]]:
    """(source rows, cells of those rows) of each copy."""
    lane, column = lane_of(address), address & 0xFFFF
    width = _shape(shape, multicast)[1] // 4
    tmem.require(column, column + width, f"tcgen05.cp.{shape}")
    targets = _relative_targets(shape, multicast)
    if lane + max(int(lanes.max()) for _, lanes in targets) > 127:
        raise EmulationError(f"tcgen05.cp.{shape} at lane {lane} leaves the 128 lanes")
    return [
        (rows, (lanes + lane)[:, None] * COLUMNS + column + np.arange(width))
        for rows, lanes in targets
    ]


@lru_cache(maxsize=16)
def _relative_targets(shape: str, multicast: str) -> tuple[tuple[slice, NDArray[np.intp]], ...]:
    rows = np.arange(_SHAPES[shape][0])
    every = slice(None)
    if shape == "4x256b":
        return ((every, 32 * rows),)
    if multicast == "warpx4":
        return tuple((every, rows + 32 * i) for i in range(4))
    if multicast == "warpx2::02_13":
        return (every, rows), (every, rows + 64)
    if multicast == "warpx2::01_23":
        quarter = np.arange(32)
        return tuple(
            (slice(32 * half, 32 * half + 32), quarter + 64 * half + 32 * copy)
            for half in (0, 1)
            for copy in (0, 1)
        )
    return ((every, rows),)

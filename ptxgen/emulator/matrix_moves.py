"""ldmatrix, stmatrix and movmatrix: 8x8 and 16x16 tiles between shared memory and a warp.

Registers are arrays of shape (registers, 32). Source: PTX ISA 9.0, "ldmatrix", "stmatrix",
"movmatrix".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.formats import unpack_slot_codes
from ptxgen.emulator.memory import MemoryBlock
from ptxgen.errors import UnknownInstructionError

Registers = NDArray[np.uint32]
Rows = NDArray[np.uint8]


def ldmatrix(
    memory: MemoryBlock,
    addresses: NDArray[Any],
    shape: str,
    count: int,
    *,
    transpose: bool = False,
    packed: str = "",
) -> Registers:
    """The registers that ldmatrix loads.

    `addresses` holds one row address per lane, shape (32,); `shape` m8n8, m16n16 or m8n16; `count`
    the .x number; `packed` b4x16_p64 or b6x16_p32 for the unpacking forms, which leave codes in the
    low bits of their bytes (so CUTLASS, which shifts e2m1 for mma.sync; not run on hardware).
    Raises: OutOfBoundsError, MisalignedError, UnknownInstructionError.
    """
    num_rows = (16 if shape == "m16n16" else 8) * count
    if num_rows > 32:
        raise UnknownInstructionError(f"ldmatrix.{shape}.x{count} does not exist")
    rows = _read_rows(memory, addresses[:num_rows])
    if packed:
        rows = unpack_slot_codes(rows, packed)
    if shape == "m8n8":
        tiles = rows.view(np.uint16).reshape(count, 8, 8)
        if transpose:
            tiles = tiles.transpose(0, 2, 1)
        return np.ascontiguousarray(tiles).view(np.uint32).reshape(count, 32)
    if shape == "m8n16":
        return np.ascontiguousarray(rows).view(np.uint32).reshape(count, 32)
    if shape == "m16n16" and transpose:
        # register 2 j + h, byte b of lane 4 g + q = byte g + 8 h of row 4 q + b
        parts = rows.reshape(count, 4, 4, 2, 8).transpose(0, 3, 4, 1, 2)
        return np.ascontiguousarray(parts).view(np.uint32).reshape(2 * count, 32)
    raise UnknownInstructionError(f"ldmatrix.{shape}.x{count} without .trans does not exist")


def stmatrix(
    memory: MemoryBlock,
    addresses: NDArray[Any],
    registers: Registers,
    shape: str,
    *,
    transpose: bool = False,
) -> None:
    """Store what stmatrix stores: m8n8 (16-bit elements) or m16n8 (bytes, always transposed).

    `addresses` holds one row address per lane, of which the first 8 per register count.
    Raises: OutOfBoundsError, MisalignedError, UnknownInstructionError.
    """
    count = len(registers)
    raw = np.ascontiguousarray(registers)
    if shape == "m8n8":
        tiles = raw.view(np.uint16).reshape(count, 8, 8)
        if transpose:
            tiles = np.ascontiguousarray(tiles.transpose(0, 2, 1))
        rows = tiles.view(np.uint8).reshape(8 * count, 16)
    elif shape == "m16n8" and transpose:
        # byte 2 h + b of lane 4 g + q goes to row 2 q + b, byte g + 8 h
        parts = raw.view(np.uint8).reshape(count, 8, 4, 2, 2).transpose(0, 2, 4, 3, 1)
        rows = np.ascontiguousarray(parts).reshape(8 * count, 16)
    else:
        raise UnknownInstructionError(f"stmatrix.{shape} without .trans does not exist")
    units = memory.offsets_of(addresses[: 8 * count], 16) >> 4
    memory.u128[units] = rows.view("V16").ravel()
    if memory.initialised is not None:
        memory.initialised.reshape(-1, 16)[units] = True


def movmatrix(registers: Registers) -> Registers:
    """The transposed 8x8 matrix of 16-bit elements, (1, 32) -> (1, 32)."""
    tile = np.ascontiguousarray(registers).view(np.uint16).reshape(8, 8).T
    return np.ascontiguousarray(tile).view(np.uint32).reshape(1, 32)


def _read_rows(memory: MemoryBlock, addresses: NDArray[Any]) -> Rows:
    rows: Rows = memory.u128[memory.offsets_of(addresses, 16) >> 4].view(np.uint8)
    return rows.reshape(-1, 16)

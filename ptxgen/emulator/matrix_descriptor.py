"""Shared memory matrix descriptors of wgmma and tcgen05: decode, and gather what they describe.

Source: PTX ISA 9.0, "Matrix Descriptor Format" and "Shared memory descriptor"; the address
formulas of wgmma were read back element by element on an H200, those of tcgen05 follow CUTLASS 4.7.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory import SharedMemory
from ptxgen.errors import EmulationError, OutOfBoundsError

Elements = NDArray[Any]

_CHUNK_MASK = (1 << 14) - 1
"""Addresses are 18 bits, descriptors count 16-byte chunks."""
_PERIOD = 1024
_SPAN = {"32B": 32, "64B": 64, "128B": 128, "128B_ATOM_32B": 128}
_SM90_MODES = ("none", "128B", "64B", "32B")
_SM100_MODES = {0: "none", 1: "128B_ATOM_32B", 2: "128B", 4: "64B", 6: "32B"}
_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


@dataclass(frozen=True)
class MatrixDescriptor:
    """A decoded descriptor. Offsets in bytes."""

    start: int
    """18-bit shared memory address."""
    leading_bytes: int
    """Leading dimension byte offset; an absolute address if `leading_is_absolute`."""
    stride_bytes: int
    """Stride dimension byte offset."""
    base_offset: int
    """Line of the swizzle pattern on which it starts, 0..7."""
    swizzle: str
    """none, 32B, 64B, 128B, or 128B_ATOM_32B."""
    leading_is_absolute: bool = False
    """tcgen05 with K = 96 on sm_103a only."""


@lru_cache(maxsize=4096)
def decode_sm90(bits: int) -> MatrixDescriptor:
    """The fields of a wgmma descriptor.

    Raises: EmulationError if a bit that must be zero is set.
    """
    if bits & _ZERO_BITS_SM90:
        raise EmulationError(
            f"wgmma matrix descriptor {bits:#018x}: bits {_ZERO_BITS_SM90:#018x} must be 0, "
            f"got {bits & _ZERO_BITS_SM90:#x}; was it built for tcgen05, or never built?"
        )
    return MatrixDescriptor(
        (bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4,
        bits >> 49 & 7, _SM90_MODES[bits >> 62 & 3],
    )  # fmt: skip


@lru_cache(maxsize=4096)
def decode_sm100(bits: int) -> MatrixDescriptor:
    """The fields of a tcgen05 descriptor.

    Raises: EmulationError if bits 48:46 are not 0b001, a zero bit is set, or the layout is none.
    """
    mode = _SM100_MODES.get(bits >> 61 & 7)
    if bits >> 46 & 7 != 1 or bits & _ZERO_BITS_SM100 or mode is None:
        raise EmulationError(
            f"tcgen05 matrix descriptor {bits:#018x}: bits 48:46 must be 0b001 (got "
            f"{bits >> 46 & 7:#05b}), bits {_ZERO_BITS_SM100:#018x} must be 0 (got "
            f"{bits & _ZERO_BITS_SM100:#x}), layout must be 0, 1, 2, 4 or 6 (got {bits >> 61 & 7})"
        )
    return MatrixDescriptor(
        (bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4,
        bits >> 49 & 7, mode, bool(bits >> 52 & 1),
    )  # fmt: skip


_ZERO_BITS_SM90 = 3 << 14 | 3 << 30 | 7 << 46 | 0x3FF << 52
_ZERO_BITS_SM100 = 3 << 14 | 3 << 30 | 0xFF << 53


def gather_operand(
    descriptor: MatrixDescriptor,
    smem: SharedMemory,
    rows: int,
    k: int,
    element_bytes: int,
    *,
    mn_major: bool,
) -> Elements:
    """The operand of one instruction: unsigned elements, shape (rows, k).

    `rows` counts M or N, `k` elements of `element_bytes` (1 for packed types: then k is bytes).
    Raises: OutOfBoundsError when it leaves the shared memory of the CTA.
    """
    index = operand_chunks(descriptor, smem, rows, k, element_bytes, mn_major=mn_major)
    raw = smem.u128[index]
    dtype = _UNSIGNED[element_bytes]
    if not mn_major:
        return np.asarray(raw.view(dtype).reshape(rows, k))
    # chunks are (row chunk, k), each holding consecutive rows of one k
    per_chunk = 16 // element_bytes
    tile = raw.view(dtype).reshape(-1, k, per_chunk).transpose(0, 2, 1)
    return np.ascontiguousarray(tile).reshape(-1, k)[:rows]


def operand_chunks(
    descriptor: MatrixDescriptor,
    smem: SharedMemory,
    rows: int,
    k: int,
    element_bytes: int,
    *,
    mn_major: bool,
) -> NDArray[np.int64]:
    """Index of every 16-byte chunk that the operand reads; times 16 these are its footprint.

    Raises: OutOfBoundsError.
    """
    phase = descriptor.start % _PERIOD
    relative, low, high = _relative_chunks(descriptor, phase, rows, k, element_bytes, mn_major)
    base = (descriptor.start - phase) >> 4
    index = relative + base
    low, high = low + base, high + base
    if high > _CHUNK_MASK or low < 0:
        index &= _CHUNK_MASK
        low, high = int(index.min()), int(index.max())
    if low * 16 < smem.first or high * 16 + 16 > smem.nbytes:
        raise OutOfBoundsError(
            f"a matrix descriptor (start {descriptor.start:#x}, leading "
            f"{descriptor.leading_bytes} B, stride {descriptor.stride_bytes} B, swizzle "
            f"{descriptor.swizzle}) reads [{low * 16:#x}, {high * 16 + 16:#x}), which must lie in "
            f"{smem.name} [{smem.first:#x}, {smem.nbytes:#x})"
        )
    return index


@lru_cache(maxsize=4096)
def _relative_chunks(
    descriptor: MatrixDescriptor, phase: int, rows: int, k: int, element_bytes: int, mn_major: bool
) -> tuple[NDArray[np.int64], int, int]:
    """(chunk indices from the last multiple of 1024 below the start, their minimum and maximum)."""
    d = descriptor
    span = _SPAN.get(d.swizzle, 16)
    leading, stride = d.leading_bytes, d.stride_bytes
    if mn_major:
        chunks = np.arange(0, rows * element_bytes, 16, dtype=np.int64)[:, None]
        depth = np.arange(k, dtype=np.int64)[None, :]
        if d.swizzle == "none":
            offsets = chunks // 16 * stride + depth % 8 * 16 + depth // 8 * leading
        else:
            group = 4 if d.swizzle == "128B_ATOM_32B" else 8
            offsets = chunks % span + chunks // span * leading
            offsets = offsets + depth % group * span + depth // group * stride
    else:
        row = np.arange(rows, dtype=np.int64)[:, None]
        chunk = np.arange(0, k * element_bytes, 16, dtype=np.int64)[None, :]
        if d.swizzle == "none":
            offsets = row % 8 * 16 + row // 8 * stride + chunk // 16 * leading
        else:
            offsets = row % 8 * span + row // 8 * stride + chunk
    linear = offsets.ravel() + phase
    index = _swizzle_from(linear, d.swizzle, d.base_offset) >> 4
    index.flags.writeable = False
    return index, int(index.min()), int(index.max())


def _swizzle_from(linear: NDArray[np.int64], mode: str, base_offset: int) -> NDArray[np.int64]:
    """Swizzle whose pattern starts `base_offset` lines late. The mask serves negative lines too."""
    line = (linear >> 7) - base_offset
    if mode == "none":
        return linear.copy()
    if mode == "128B_ATOM_32B":
        return linear ^ (line & 3) << 5
    return linear ^ (line & (_SPAN[mode] // 16 - 1)) << 4

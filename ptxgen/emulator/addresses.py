"""Address arithmetic of the state spaces: cluster ranks, generic windows.

As on an H200: a shared::cluster address is rank << 24 | offset, static shared memory starts at
offset 0x400, and shared and local memory are windows of the generic address space.
Source: read back on an H200 (docs/hardware-findings.md).
"""

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.observer import Space

Addresses = NDArray[np.int64]

SHARED_RANK_SHIFT = 24
SHARED_OFFSET_MASK = (1 << SHARED_RANK_SHIFT) - 1
STATIC_SMEM_OFFSET = 0x400
"""The first KiB of the window is reserved."""
SMEM_UNIT_BYTES = 128
"""Shared memory is allocated in multiples of this."""
RESERVED_SCRATCH_BYTES = 288
"""Of the first KiB from offset 0, where %reserved_smem_offset_1 points: the scratch of cooperative
groups."""
MAX_SMEM_BYTES = 232448
"""Shared memory of one CTA beside the reserved KiB (sm_90, sm_100, sm_103)."""
SMEM_WINDOW_END = STATIC_SMEM_OFFSET + MAX_SMEM_BYTES

SHARED_WINDOW = 0x7F00_0000_0000
"""Generic address of shared::cluster address 0."""
LOCAL_WINDOW = 0x7E00_0000_0000
"""Generic address of local address 0."""
WINDOW_BYTES = 1 << 32


def shared_generic(address: int) -> int:
    """Generic address of a shared::cta or shared::cluster address (cvta.shared)."""
    return SHARED_WINDOW + address


def locate(address: int) -> tuple[Space, int]:
    """State space and address in it of one generic address.

    Shared: the address still holds the rank (shared::cluster).
    """
    if SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW_BYTES:
        return Space.SHARED, address - SHARED_WINDOW
    if LOCAL_WINDOW <= address < LOCAL_WINDOW + WINDOW_BYTES:
        return Space.LOCAL, address - LOCAL_WINDOW
    return Space.GLOBAL, address


def locate_lanes(addresses: Addresses) -> list[tuple[Space, Addresses, NDArray[np.intp]]]:
    """Split generic addresses by state space: (space, addresses in it, positions of the lanes)."""
    parts = []
    window = addresses >> 32
    for space, base in ((Space.SHARED, SHARED_WINDOW), (Space.LOCAL, LOCAL_WINDOW)):
        found = np.flatnonzero(window == base >> 32)
        if len(found):
            parts.append((space, addresses[found] - base, found))
    rest = np.flatnonzero((window != SHARED_WINDOW >> 32) & (window != LOCAL_WINDOW >> 32))
    if len(rest):
        parts.append((Space.GLOBAL, addresses[rest], rest))
    return parts


def split_shared(address: int) -> tuple[int, int]:
    """(cluster rank, offset) of a shared::cluster address."""
    return address >> SHARED_RANK_SHIFT, address & SHARED_OFFSET_MASK


def join_shared(rank: int, offset: int) -> int:
    """shared::cluster address of `offset` in the CTA of `rank` (mapa)."""
    return rank << SHARED_RANK_SHIFT | offset & SHARED_OFFSET_MASK

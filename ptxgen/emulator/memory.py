"""Memories of the emulated GPU: global allocations, shared memory per CTA, local memory per warp.

Addresses follow what an H200 does: a shared::cluster address is rank << 24 | offset, static
shared memory starts at offset 0x400, and generic addresses are windows beside global memory.
Source: shared/reference/ptx.md C3, F4.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.observer import Space
from ptxgen.errors import EmulationError, MisalignedError, OutOfBoundsError

Addresses = NDArray[np.int64]
Words = NDArray[Any]

POISON = 0xFF
"""Fills memory that nobody wrote: a NaN in e4m3, e5m2, bf16, f16 and f32, and a huge integer."""

SHARED_RANK_SHIFT = 24
SHARED_OFFSET_MASK = (1 << SHARED_RANK_SHIFT) - 1
STATIC_SMEM_OFFSET = 0x400
"""The first KiB of the window is reserved."""
MAX_SMEM_BYTES = 232448
"""Shared memory of one CTA beside the reserved KiB (sm_90, sm_100, sm_103)."""
SMEM_WINDOW_END = STATIC_SMEM_OFFSET + MAX_SMEM_BYTES

SHARED_WINDOW = 0x7F00_0000_0000
"""Generic address of shared::cluster address 0."""
LOCAL_WINDOW = 0x7E00_0000_0000
"""Generic address of local address 0."""
WINDOW_BYTES = 1 << 32
GLOBAL_BASE = 0x0010_0000_0000
"""Address of the first global allocation."""
GUARD_BYTES = 1 << 16
"""Unmapped bytes between two allocations."""
ALLOCATION_ALIGNMENT = 256

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FORMAT = {1: "B", 2: "H", 4: "I", 8: "Q"}


class MemoryBlock:
    """Contiguous bytes at `base`, with aligned typed views.

    Vector accesses take one address per lane and move elements of 1, 2, 4 or 8 bytes.
    """

    def __init__(
        self, name: str, base: int, nbytes: int, *, first: int = 0, track: bool = False
    ) -> None:
        """`first` is the lowest legal offset; `track` keeps a mask of initialised bytes."""
        self.name = name
        self.base = base
        self.nbytes = nbytes
        self.first = first
        storage = np.full(-(-nbytes // 16) * 16, POISON, np.uint8)
        self.u8: NDArray[np.uint8] = storage
        """Every byte (padded to a multiple of 16); index = address - base."""
        self.u128: NDArray[np.complex128] = storage.view(np.complex128)
        """The same in 16-byte units; only ever copied, never computed with."""
        self.views: dict[int, Words] = {s: storage.view(t) for s, t in _UNSIGNED.items()}
        raw = memoryview(cast(Any, storage))
        self._ints: dict[int, Any] = {s: raw.cast(cast(Any, f)) for s, f in _FORMAT.items()}
        self.initialised: NDArray[np.bool_] | None = np.zeros(len(storage), bool) if track else None
        """One flag per byte, or None when nobody asked."""

    def load(self, addresses: Addresses, size: int) -> Words:
        """One element of `size` bytes per address: unsigned integers, shape (n,).

        Raises: OutOfBoundsError, MisalignedError.
        """
        index = self._offsets(addresses, size)
        found: Words = self.views[size][index >> (size.bit_length() - 1)]
        return found

    def load_vector(self, addresses: Addresses, size: int, count: int) -> Words:
        """`count` consecutive elements per address (ld.v2, .v4, .v8): shape (count, n).

        Raises: OutOfBoundsError, MisalignedError.
        """
        index = self._offsets(addresses, size * count) >> (size.bit_length() - 1)
        found: Words = self.views[size][index + np.arange(count)[:, None]]
        return found

    def store(self, addresses: Addresses, values: Words, size: int) -> None:
        """Write one element per address; of equal addresses the last lane wins.

        Raises: OutOfBoundsError, MisalignedError.
        """
        index = self._offsets(addresses, size)
        self.views[size][index >> (size.bit_length() - 1)] = values
        if self.initialised is not None:
            self.initialised[index[:, None] + np.arange(size)] = True

    def store_vector(self, addresses: Addresses, values: Words, size: int) -> None:
        """Write `values` (count, n): `count` consecutive elements per address.

        Raises: OutOfBoundsError, MisalignedError.
        """
        count = len(values)
        index = self._offsets(addresses, size * count)
        self.views[size][(index >> (size.bit_length() - 1)) + np.arange(count)[:, None]] = values
        if self.initialised is not None:
            self.initialised[index[:, None] + np.arange(size * count)] = True

    def load_int(self, address: int, size: int) -> int:
        """The unsigned element of `size` bytes at one address.

        Raises: OutOfBoundsError, MisalignedError.
        """
        offset = address - self.base
        if offset < self.first or offset + size > self.nbytes or offset & (size - 1):
            self._fail(address, size)
        return int(self._ints[size][offset // size])

    def store_int(self, address: int, value: int, size: int) -> None:
        """Write the low `size` bytes of `value` at one address.

        Raises: OutOfBoundsError, MisalignedError.
        """
        offset = address - self.base
        if offset < self.first or offset + size > self.nbytes or offset & (size - 1):
            self._fail(address, size)
        self._ints[size][offset // size] = value & ((1 << 8 * size) - 1)
        if self.initialised is not None:
            self.initialised[offset : offset + size] = True

    def read(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """A view of `nbytes` contiguous bytes.

        Raises: OutOfBoundsError.
        """
        offset = self.require(address, nbytes)
        return self.u8[offset : offset + nbytes]

    def write(self, address: int, data: bytes | memoryview | NDArray[np.uint8]) -> None:
        """Write contiguous bytes.

        Raises: OutOfBoundsError.
        """
        raw = np.frombuffer(data, np.uint8)
        offset = self.require(address, len(raw))
        self.u8[offset : offset + len(raw)] = raw
        if self.initialised is not None:
            self.initialised[offset : offset + len(raw)] = True

    def require(self, address: int, nbytes: int) -> int:
        """Offset of `address`, once all `nbytes` bytes from it are known to be legal.

        Raises: OutOfBoundsError.
        """
        offset = address - self.base
        if offset < self.first or offset + nbytes > self.nbytes:
            self._fail(address, nbytes, aligned=True)
        return offset

    def uninitialised(self, addresses: Addresses, size: int) -> NDArray[np.bool_]:
        """For each address, whether any of its `size` bytes was never written.

        Without tracking, all False.
        """
        if self.initialised is None:
            return np.zeros(len(addresses), bool)
        offsets = np.asarray(addresses) - self.base
        known: NDArray[np.bool_] = self.initialised[offsets[:, None] + np.arange(size)]
        missing: NDArray[np.bool_] = np.logical_not(known.all(axis=1))
        return missing

    def _offsets(self, addresses: Addresses, size: int) -> Addresses:
        offsets = addresses - self.base if self.base else addresses
        low, high = offsets.min(), offsets.max()
        if low < self.first or high + size > self.nbytes:
            bad = (offsets < self.first) | (offsets + size > self.nbytes)
            self._fail(int(addresses[int(bad.argmax())]), size, lane=int(bad.argmax()))
        if int(np.bitwise_or.reduce(offsets)) & (size - 1):
            lane = int(((offsets & (size - 1)) != 0).argmax())
            self._fail(int(addresses[lane]), size, lane=lane)
        return offsets

    def _fail(
        self, address: int, size: int, lane: int | None = None, aligned: bool = False
    ) -> None:
        where = "" if lane is None else f" (active lane number {lane})"
        offset = address - self.base
        if offset >= self.first and offset + size <= self.nbytes and not aligned:
            raise MisalignedError(
                f"{self.name}: a {size}-byte access needs an address that is a multiple of {size}, "
                f"got {address:#x}{where}"
            )
        legal = f"[{self.base + self.first:#x}, {self.base + self.nbytes:#x})"
        if offset < self.first:
            how = f"starts {self.first - offset} B before it"
        else:
            how = f"runs {offset + size - self.nbytes} B past its end"
        raise OutOfBoundsError(
            f"{size}-byte access at {address:#x} must lie in {self.name} {legal}; it {how}{where}"
        )


class SharedMemory(MemoryBlock):
    """Shared memory of one CTA; addresses are offsets in its window (rank bits removed)."""

    def __init__(self, end: int, *, cta: int = 0, track: bool = False) -> None:
        """`end` is the offset after the last static or dynamic byte (0x400 = none).

        Raises: OutOfBoundsError when it exceeds what an SM has.
        """
        if end > SMEM_WINDOW_END:
            raise OutOfBoundsError(
                f"shared memory must end at or below offset {SMEM_WINDOW_END:#x} ({MAX_SMEM_BYTES} "
                f"B after the reserved KiB), got {end:#x}; use less static or dynamic memory"
            )
        super().__init__(
            f"shared memory of CTA {cta}", 0, end, first=STATIC_SMEM_OFFSET, track=track
        )
        self.cta = cta


class LocalMemory(MemoryBlock):
    """Local memory of one warp: `nbytes` per lane, laid out one lane after the other."""

    def __init__(self, nbytes: int, *, track: bool = False) -> None:
        self.lane_bytes = -(-nbytes // 16) * 16
        super().__init__("local memory", 0, 32 * self.lane_bytes, track=track)
        self.legal_bytes = nbytes

    def addresses(self, lanes: NDArray[np.int64], offsets: Addresses, size: int) -> Addresses:
        """Addresses in this block of `offsets` in each lane's own local memory.

        Raises: OutOfBoundsError.
        """
        bad = (offsets < 0) | (offsets + size > self.legal_bytes)
        if bad.any():
            first = int(bad.argmax())
            raise OutOfBoundsError(
                f"{size}-byte access at local address {int(offsets[first]):#x} must lie in "
                f"[0, {self.legal_bytes:#x}) (lane {int(lanes[first])})"
            )
        return lanes * self.lane_bytes + offsets


class GlobalMemory:
    """Named allocations with unmapped guard bytes between them."""

    def __init__(self, *, track: bool = False) -> None:
        self._track = track
        self._bases: list[int] = []
        self._blocks: list[MemoryBlock] = []
        self._next = GLOBAL_BASE
        self._last: MemoryBlock | None = None

    def allocate(self, nbytes: int, name: str = "") -> int:
        """Address of `nbytes` new poisoned bytes, 256-byte aligned.

        Raises: EmulationError if nbytes < 1.
        """
        if nbytes < 1:
            raise EmulationError(f"an allocation must have at least 1 byte, got {nbytes}")
        base = self._next
        self._next = (
            -(-(base + nbytes + GUARD_BYTES) // ALLOCATION_ALIGNMENT) * ALLOCATION_ALIGNMENT
        )
        label = f"buffer {name!r}" if name else f"allocation {base:#x}"
        self._bases.append(base)
        self._blocks.append(MemoryBlock(label, base, nbytes, track=self._track))
        return base

    def free(self, address: int) -> None:
        """Give an allocation back; its address is never used again.

        Raises: OutOfBoundsError if no allocation starts there.
        """
        if address not in self._bases:
            raise OutOfBoundsError(f"free needs the start of a live allocation, got {address:#x}")
        index = self._bases.index(address)
        del self._bases[index], self._blocks[index]
        self._last = None

    def rename(self, address: int, name: str) -> None:
        """Call the allocation that holds `address` by a buffer name in messages."""
        self.block(address, 1).name = f"buffer {name!r}"

    @property
    def blocks(self) -> Iterable[MemoryBlock]:
        """All live allocations in address order."""
        return tuple(self._blocks)

    def block(self, address: int, nbytes: int) -> MemoryBlock:
        """The allocation that holds all bytes from `address` on.

        Raises: OutOfBoundsError naming the nearest allocation and the overrun.
        """
        last = self._last
        if last is not None and last.base <= address <= last.base + last.nbytes - nbytes:
            return last
        index = bisect_right(self._bases, address) - 1
        if index >= 0:
            found = self._blocks[index]
            if address + nbytes <= found.base + found.nbytes:
                self._last = found
                return found
        raise OutOfBoundsError(self._describe_miss(address, nbytes))

    def load(self, addresses: Addresses, size: int) -> Words:
        """As MemoryBlock.load; lanes may lie in different allocations."""
        block = self._common_block(addresses, size)
        if block is not None:
            return block.load(addresses, size)
        return np.concatenate([self.block(int(a), size).load(a[None], size) for a in addresses])

    def load_vector(self, addresses: Addresses, size: int, count: int) -> Words:
        """As MemoryBlock.load_vector; lanes may lie in different allocations."""
        block = self._common_block(addresses, size * count)
        if block is not None:
            return block.load_vector(addresses, size, count)
        parts = [
            self.block(int(a), size * count).load_vector(a[None], size, count) for a in addresses
        ]
        return np.concatenate(parts, axis=1)

    def store(self, addresses: Addresses, values: Words, size: int) -> None:
        """As MemoryBlock.store; lanes may lie in different allocations."""
        block = self._common_block(addresses, size)
        if block is not None:
            block.store(addresses, values, size)
            return
        for lane, address in enumerate(addresses):
            self.block(int(address), size).store(address[None], values[lane : lane + 1], size)

    def store_vector(self, addresses: Addresses, values: Words, size: int) -> None:
        """As MemoryBlock.store_vector; lanes may lie in different allocations."""
        nbytes = size * len(values)
        block = self._common_block(addresses, nbytes)
        if block is not None:
            block.store_vector(addresses, values, size)
            return
        for lane, address in enumerate(addresses):
            part = values[:, lane : lane + 1]
            self.block(int(address), nbytes).store_vector(address[None], part, size)

    def load_int(self, address: int, size: int) -> int:
        """As MemoryBlock.load_int."""
        return self.block(address, size).load_int(address, size)

    def store_int(self, address: int, value: int, size: int) -> None:
        """As MemoryBlock.store_int."""
        self.block(address, size).store_int(address, value, size)

    def read(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """A view of contiguous bytes of one allocation."""
        return self.block(address, nbytes).read(address, nbytes)

    def write(self, address: int, data: bytes | memoryview | NDArray[np.uint8]) -> None:
        """Write contiguous bytes into one allocation."""
        raw = np.frombuffer(data, np.uint8)
        self.block(address, len(raw)).write(address, raw)

    def _common_block(self, addresses: Addresses, size: int) -> MemoryBlock | None:
        low, high = int(addresses.min()), int(addresses.max())
        block = self.block(low, size)
        return block if high + size <= block.base + block.nbytes else None

    def _describe_miss(self, address: int, nbytes: int) -> str:
        text = f"{nbytes}-byte access at global address {address:#x} must lie in one allocation; "
        if address < 1 << 20:
            return text + "this looks like a null or uninitialised pointer"
        near = sorted(
            self._blocks,
            key=lambda b: max(b.base - address, address + nbytes - b.base - b.nbytes, 0),
        )
        if not near:
            return text + "nothing is allocated"
        block = near[0]
        if address < block.base:
            return text + f"it starts {block.base - address} B before {block.name}"
        over = address + nbytes - block.base - block.nbytes
        return text + f"it runs {over} B past the end of {block.name} ({block.nbytes} B)"


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

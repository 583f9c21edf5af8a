"""Global memory: named allocations with unmapped guard bytes between them."""

from bisect import bisect_right
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory import MemoryBlock, Words
from ptxgen.errors import EmulationError, OutOfBoundsError

GLOBAL_BASE = 0x0010_0000_0000
"""Address of the first global allocation."""
GUARD_BYTES = 1 << 16
"""Unmapped bytes between two allocations."""
ALLOCATION_ALIGNMENT = 256


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

    def load(self, addresses: Words, size: int) -> Words:
        """As MemoryBlock.load; lanes may lie in different allocations."""
        try:
            return self.block(int(addresses[0]), size).load(addresses, size)
        except OutOfBoundsError:
            parts = [self.block(int(a), size).load(a[None], size) for a in addresses]
        return np.concatenate(parts)

    def load_vector(self, addresses: Words, size: int, count: int) -> Words:
        """As MemoryBlock.load_vector; lanes may lie in different allocations."""
        nbytes = size * count
        try:
            return self.block(int(addresses[0]), nbytes).load_vector(addresses, size, count)
        except OutOfBoundsError:
            blocks = [self.block(int(a), nbytes) for a in addresses]
        lanes = zip(blocks, addresses, strict=True)
        return np.concatenate([b.load_vector(a[None], size, count) for b, a in lanes], axis=1)

    def store(self, addresses: Words, values: Words, size: int) -> None:
        """As MemoryBlock.store; lanes may lie in different allocations."""
        try:
            self.block(int(addresses[0]), size).store(addresses, values, size)
        except OutOfBoundsError:
            for a, value in zip(addresses, np.atleast_2d(values).T, strict=True):
                self.block(int(a), size).store(a[None], value, size)

    def store_vector(self, addresses: Words, values: Words, size: int) -> None:
        """As MemoryBlock.store_vector; lanes may lie in different allocations."""
        nbytes = size * len(values)
        try:
            self.block(int(addresses[0]), nbytes).store_vector(addresses, values, size)
        except OutOfBoundsError:
            for lane, a in enumerate(addresses):
                part = values[:, lane : lane + 1]
                self.block(int(a), nbytes).store_vector(a[None], part, size)

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

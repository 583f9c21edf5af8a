"""Blocks of memory with typed vector access: shared memory per CTA, local memory per warp."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.addresses import MAX_SMEM_BYTES, SMEM_WINDOW_END, STATIC_SMEM_OFFSET, Addresses
from ptxgen.errors import MisalignedError, OutOfBoundsError

Words = NDArray[Any]

POISON = 0xFF
"""Fills memory that nobody wrote: a NaN in e4m3, e5m2, bf16, f16 and f32, and a huge integer."""

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
        self.u128: NDArray[np.void] = storage.view("V16")
        """The same in 16-byte units, which numpy copies about as fast as 8-byte ones."""
        self.views: dict[int, Words] = {s: storage.view(t) for s, t in _UNSIGNED.items()}
        raw = memoryview(cast(Any, storage))
        self._ints: dict[int, Any] = {s: raw.cast(cast(Any, f)) for s, f in _FORMAT.items()}
        self.initialised: NDArray[np.bool_] | None = np.zeros(len(storage), bool) if track else None
        """One flag per byte, or None when nobody asked."""

    def load(self, addresses: Words, size: int) -> Words:
        """One element of `size` bytes per address: unsigned integers, shape (n,).

        Raises: OutOfBoundsError, MisalignedError.
        """
        index = self.offsets_of(addresses, size)
        found: Words = self.views[size][index >> (size.bit_length() - 1)]
        return found

    def load_vector(self, addresses: Words, size: int, count: int) -> Words:
        """`count` consecutive elements per address (ld.v2, .v4, .v8): shape (count, n).

        Raises: OutOfBoundsError, MisalignedError.
        """
        index = self.offsets_of(addresses, size * count) >> (size.bit_length() - 1)
        found: Words = self.views[size][index + np.arange(count)[:, None]]
        return found

    def store(self, addresses: Words, values: Words, size: int) -> None:
        """Write one element per address; of equal addresses the last lane wins.

        Raises: OutOfBoundsError, MisalignedError.
        """
        index = self.offsets_of(addresses, size)
        self.views[size][index >> (size.bit_length() - 1)] = values
        if self.initialised is not None:
            self.initialised[index[:, None] + np.arange(size)] = True

    def store_vector(self, addresses: Words, values: Words, size: int) -> None:
        """Write `values` (count, n): `count` consecutive elements per address.

        Raises: OutOfBoundsError, MisalignedError.
        """
        count = len(values)
        index = self.offsets_of(addresses, size * count)
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

    def offsets_of(self, addresses: Words, size: int) -> Addresses:
        """Offsets of addresses (of any integer type), each good for an aligned `size`-byte access.

        Raises: OutOfBoundsError, MisalignedError.
        """
        offsets = addresses.astype(np.int64)
        if self.base:
            offsets -= self.base
        # negative offsets are huge as unsigned, so one maximum checks both ends
        highest = int(np.maximum.reduce((offsets - self.first).view(np.uint64)))
        if highest + size > self.nbytes - self.first:
            bad = (offsets < self.first) | (offsets + size > self.nbytes)
            lane = int(bad.argmax())
            self._fail(int(addresses[lane]), size, lane=lane)
        if np.bitwise_or.reduce(offsets) & (size - 1):
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

    def __init__(
        self, end: int, *, cta: int = 0, first: int = STATIC_SMEM_OFFSET, track: bool = False
    ) -> None:
        """`end` is the offset after the last static or dynamic byte (0x400 = none), `first` the
        lowest offset that may be used.

        Raises: OutOfBoundsError when it exceeds what an SM has.
        """
        if end > SMEM_WINDOW_END:
            raise OutOfBoundsError(
                f"shared memory must end at or below offset {SMEM_WINDOW_END:#x} ({MAX_SMEM_BYTES} "
                f"B after the reserved KiB), got {end:#x}; use less static or dynamic memory"
            )
        super().__init__(f"shared memory of CTA {cta}", 0, end, first=first, track=track)
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

"""Global memory that answers reads outside of buffers with poison, and reports them."""

from typing import Any

import numpy as np

from ptxgen.emulator.checker import Checker
from ptxgen.emulator.global_memory import GlobalMemory
from ptxgen.emulator.lanes import UNSIGNED
from ptxgen.emulator.memory import POISON, Words
from ptxgen.errors import OutOfBoundsError


class LenientMemory(GlobalMemory):
    """As GlobalMemory, but ordinary loads never fail for their address."""

    def __init__(self, *, track: bool = False, on_miss: Checker | None = None) -> None:
        super().__init__(track=track)
        self._checker = on_miss

    def load(self, addresses: Words, size: int) -> Words:
        """As GlobalMemory.load; lanes outside of buffers get poison."""
        try:
            return super().load(addresses, size)
        except OutOfBoundsError as error:
            self._note(error)
            found = [self._one(int(a), size, 1)[:, 0] for a in addresses]
        return np.concatenate(found)

    def load_vector(self, addresses: Words, size: int, count: int) -> Words:
        """As GlobalMemory.load_vector; lanes outside of buffers get poison."""
        try:
            return super().load_vector(addresses, size, count)
        except OutOfBoundsError as error:
            self._note(error)
            found = [self._one(int(a), size, count) for a in addresses]
        return np.concatenate(found, axis=1)

    def load_int(self, address: int, size: int) -> int:
        """As GlobalMemory.load_int; poison outside of buffers."""
        try:
            return super().load_int(address, size)
        except OutOfBoundsError as error:
            self._note(error)
            return int.from_bytes(bytes([POISON]) * size, "little")

    def _one(self, address: int, size: int, count: int) -> Words:
        try:
            return super().load_vector(np.array([address]), size, count)
        except OutOfBoundsError:
            raw: Any = np.full(size * count, POISON, np.uint8)
            return np.asarray(raw.view(UNSIGNED[8 * size])[:, None])

    def _note(self, error: OutOfBoundsError) -> None:
        if self._checker is not None:
            self._checker.out_of_bounds(str(error))

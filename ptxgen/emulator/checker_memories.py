"""Memories: the shadow of every memory that a run touches."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.observer import Access, AccessKind, BarrierKey, Origin, Proxy, Space
from ptxgen.emulator.shadow import TENSOR_COLUMNS, Rectangle, Region, Shadow, Table, rectangle
from ptxgen.errors import OutOfBoundsError

TENSOR_LANES = 128
LARGEST_READ_BYTES = 1 << 26
"""Buffers beyond this are followed from their first write on; their earlier reads are not kept."""


class Memories:
    """Shared and tensor memory per CTA, global memory per allocation."""

    def __init__(self) -> None:
        self.read_only: set[str] = set()
        """Names of buffers that no kernel writes; reads of them need no shadow."""
        self._machine: Any = None
        self._tables: dict[int, Table] = {}
        self._shared: dict[int, Shadow] = {}
        self._tensor: dict[int, Shadow] = {}
        self._barrier_words: dict[int, NDArray[np.bool_]] = {}
        self._barriers: dict[int, set[int]] = {}
        self._global: dict[int, Shadow] = {}
        self._global_table = Table()
        self._cells: dict[tuple[int, int, int], NDArray[np.int64]] = {}
        """Cells of rectangles by first, last and number."""
        self._quiet: dict[int, bool] = {}
        """Base of an allocation -> whether reads of it are let through."""

    def attach(self, machine: Any) -> None:
        """The machine of the next launch."""
        self._machine = machine
        self._quiet = {}

    def begin_cluster(self, ctas: list[Any]) -> None:
        """CTAs become resident."""
        table = Table()
        for cta in ctas:
            self._tables[cta.index] = table
            self._shared[cta.index] = Shadow(table, cta.smem.nbytes)
            words = len(self._shared[cta.index].writers)
            self._barrier_words[cta.index] = np.zeros(words, bool)
            self._barriers[cta.index] = set()

    def drop(self, ctas: set[int]) -> None:
        """CTAs are gone."""
        for cta in ctas:
            for owned in (
                self._tables, self._shared, self._tensor, self._barrier_words, self._barriers,
            ):  # fmt: skip
                owned.pop(cta, None)

    def forget_global(self) -> None:
        """Everything before is ordered."""
        self._global.clear()
        self._global_table = Table()

    def shadow(self, access: Access) -> Shadow | None:
        """The memory of an access; None where nothing can go wrong."""
        space = access.space
        if space is Space.SHARED:
            found = self._shared[access.owner]
            self._tidy(access.owner)
            return found
        if space is Space.TENSOR:
            tensor = self._tensor.get(access.owner)
            if tensor is None:
                tensor = self._tensor[access.owner] = Shadow(
                    self._tables[access.owner], TENSOR_LANES * TENSOR_COLUMNS * 4
                )
            return tensor
        if space is Space.GLOBAL:
            return self._global_shadow(access)
        return None

    def region(self, shadow: Shadow, access: Access) -> Region:
        """The words of an access."""
        if access.space is not Space.TENSOR:
            return shadow.region(access)
        region = rectangle(access)
        if isinstance(region, Rectangle):
            # Accumulators have many cells, and records keep their accesses: share the arrays.
            key = (int(access.addresses[0]), int(access.addresses[-1]), len(access.addresses))
            access.addresses = self._cells.setdefault(key, access.addresses)
        return region

    def _tidy(self, cta: int) -> None:
        table = self._tables[cta]
        if table.is_crowded():
            members = [c for c, t in self._tables.items() if t is table]
            shadows = [self._shared[c] for c in members]
            table.compact(shadows + [self._tensor[c] for c in members if c in self._tensor])

    def _global_shadow(self, access: Access) -> Shadow | None:
        try:
            block = self._machine.memory.block(int(access.addresses[0]), 1)
        except OutOfBoundsError:
            return None
        found = self._global.get(block.base)
        if found is None:
            if access.kind is AccessKind.READ and self._is_quiet(block):
                return None
            found = self._global[block.base] = Shadow(self._global_table, block.nbytes, block.base)
        if self._global_table.is_crowded():
            self._global_table.compact(self._global.values())
        addresses = access.addresses
        low, high = int(addresses.min()), int(addresses.max())
        if low < block.base or high + access.size > block.base + block.nbytes:
            return None  # lanes in several buffers; each is seen by other accesses
        return found

    def input_of(self, access: Access) -> str:
        """Name of the buffer of role in that an access touches; empty if it is none."""
        if access.space is not Space.GLOBAL or not self.read_only:
            return ""
        try:
            name = _name(self._machine.memory.block(int(access.addresses[0]), 1))
        except OutOfBoundsError:
            return ""
        return name if name in self.read_only else ""

    def _is_quiet(self, block: Any) -> bool:
        quiet = self._quiet.get(block.base)
        if quiet is None:
            name = _name(block)
            quiet = name in self.read_only or name == "parameters"
            quiet = self._quiet[block.base] = quiet or block.nbytes > LARGEST_READ_BYTES
        return quiet

    def mark_barrier(self, barrier: BarrierKey, live: bool) -> None:
        """An mbarrier begins or ends."""
        cta, offset = barrier
        self._barrier_words[cta][offset >> 2 : (offset >> 2) + 2] = live
        (self._barriers[cta].add if live else self._barriers[cta].discard)(offset)

    def barrier_in(self, cta: int, region: Region) -> int | None:
        """Offset of a live mbarrier that a region overlaps."""
        words = self._barrier_words[cta]
        if not self._barriers[cta]:
            return None
        hit = words.reshape(-1, region.width)[region.index]
        if not hit.any():
            return None
        index = np.arange(len(words)).reshape(-1, region.width)[region.index].reshape(-1)
        word = int(index[int(hit.reshape(-1).argmax())])
        return next((o for o in self._barriers[cta] if o >> 2 in (word, word - 1)), word << 2)

    def barrier_access(self, barrier: BarrierKey, origin: Origin) -> Access:
        """The bytes that mbarrier.init writes."""
        return Access(
            AccessKind.WRITE, Proxy.GENERIC, Space.SHARED, barrier[0], np.array([barrier[1]]), 8,
            origin,
        )  # fmt: skip

    def columns(self, origin: Origin, column: int, num_columns: int) -> Access:
        """All cells of some columns of tensor memory."""
        lanes = np.arange(TENSOR_LANES)[:, None] * TENSOR_COLUMNS
        cells = (lanes + column + np.arange(num_columns)).ravel() * 4
        return Access(
            AccessKind.WRITE, Proxy.TCGEN05, Space.TENSOR, origin.cta, cells, 4, origin
        )  # fmt: skip


def _name(block: Any) -> str:
    """Name of the buffer that is an allocation."""
    return str(block.name.removeprefix("buffer ").strip("'"))

"""Shadow memory: for every 4-byte word who wrote it last, and who has read it since.

The arrays hold numbers of entries in a table. An entry is one access (`Record`), several readers
(`Readers`), or the writers of parts of a word (`Parts`); so a 16 KiB tile costs one comparison and
one assignment, and the reasoning is done once per distinct entry.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.observer import Access, AccessKind, Origin, Proxy

Numbers = NDArray[np.int32]

WORD = 4
"""Bytes of one shadow entry."""
MAX_ENTRIES = 20_000
"""Entries of a table after which it is searched for dead ones."""


@dataclass(slots=True, eq=False)
class Record:
    """One access, or the part of an asynchronous operation in one memory."""

    kind: AccessKind
    proxy: Proxy
    what: str
    """Kind of the asynchronous operation; empty for ordinary accesses."""
    agent: Agent
    """Warp that issued it."""
    origin: Origin
    access: Access
    milestones: tuple[tuple[int, int], ...]
    """(component, value) of its agent's domain, all of which say that it is over. Of an ordinary
    access: (ACCESSES component, epoch)."""
    alternative: tuple[int, int] | None = None
    """Another milestone that says so as well."""
    strong: bool = False
    """It does not race with other strong accesses."""
    operation: Any = None
    kernel: int = 0
    """Number of the launch."""
    number: int = 0
    """In its table."""

    @property
    def is_ordinary(self) -> bool:
        """Made by the instruction itself, in program order."""
        return not self.what

    @property
    def epoch(self) -> int:
        """Epoch of an ordinary access."""
        return self.milestones[0][1]


@dataclass(slots=True, eq=False)
class Readers:
    """Accesses that have read the same words and are not ordered among each other."""

    members: tuple[Record, ...]
    number: int = 0


@dataclass(slots=True, eq=False)
class Parts:
    """Writers of the bytes of one word: (mask of bytes, record)."""

    members: tuple[tuple[int, Record], ...]
    number: int = 0


Entry = Record | Readers | Parts


class Table:
    """Entries of some shadow memories, by number; 0 stands for nobody."""

    def __init__(self) -> None:
        self.entries: list[Entry | None] = [None]
        self._sets: dict[tuple[int, ...], int] = {}
        self._limit = MAX_ENTRIES

    def add(self, entry: Entry) -> int:
        """Number of a new entry."""
        entry.number = len(self.entries)
        self.entries.append(entry)
        return entry.number

    def records(self, number: int) -> tuple[Record, ...]:
        """All accesses behind a number."""
        entry = self.entries[number]
        if isinstance(entry, Record):
            return (entry,)
        if isinstance(entry, Readers):
            return entry.members
        return tuple(r for _, r in entry.members) if isinstance(entry, Parts) else ()

    def writers(self, number: int, mask: int) -> tuple[Record, ...]:
        """Accesses behind a number that wrote one of the bytes in a mask."""
        entry = self.entries[number]
        if isinstance(entry, Parts):
            return tuple(r for m, r in entry.members if m & mask)
        return self.records(number)

    def readers(self, members: tuple[Record, ...]) -> int:
        """Number of a set of readers."""
        if len(members) == 1:
            return members[0].number
        key = tuple(r.number for r in members)
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = self.add(Readers(members))
        return found

    def is_crowded(self) -> bool:
        """Whether it is time to compact."""
        return len(self.entries) > self._limit

    def compact(self, shadows: "Iterable[Shadow]") -> None:
        """Forget entries that no shadow holds."""
        arrays = [a for s in shadows for a in (s.writers, s.readers)]
        live = {int(n) for a in arrays for n in np.unique(a)} - {0}
        kept: dict[int, Entry] = {}
        for number in live:
            entry = self.entries[number]
            assert entry is not None
            kept[number] = entry
            for record in self.records(number):
                kept[record.number] = record
        renumbered = np.zeros(len(self.entries), np.int32)
        self.entries = [None]
        for number, entry in sorted(kept.items()):
            renumbered[number] = self.add(entry)
        for array in arrays:
            array[...] = renumbered[array]
        self._sets = {
            tuple(r.number for r in e.members): e.number
            for e in self.entries
            if isinstance(e, Readers)
        }
        self._limit = max(MAX_ENTRIES, 2 * len(self.entries))


@dataclass(slots=True)
class Region:
    """Words of a shadow: rows `index` of the array seen as (-1, width)."""

    width: int
    index: Any
    whole: bool = True
    """Every word is covered whole."""
    masks: Any = None
    """Masks of the bytes of each word, where not whole; `index` then lists the words."""

    def get(self, array: Numbers) -> Numbers:
        """Entries of its words."""
        found: Numbers = array.reshape(-1, self.width)[self.index]
        return found

    def put(self, array: Numbers, value: Any) -> None:
        """Set its words."""
        array.reshape(-1, self.width)[self.index] = value


@dataclass(slots=True)
class Rectangle(Region):
    """Lanes and columns of tensor memory."""

    def get(self, array: Numbers) -> Numbers:
        """Entries of its cells."""
        found: Numbers = array.reshape(-1, self.width)[self.index].reshape(-1)
        return found

    def put(self, array: Numbers, value: Any) -> None:
        """Set its cells."""
        target = array.reshape(-1, self.width)[self.index]
        target[...] = value.reshape(target.shape) if isinstance(value, np.ndarray) else value


class Shadow:
    """One memory."""

    def __init__(self, table: Table, nbytes: int, base: int = 0) -> None:
        words = -(-nbytes // 256) * 64
        self.table = table
        self.base = base
        """Address of the first byte."""
        self.writers: Numbers = np.zeros(words, np.int32)
        self.readers: Numbers = np.zeros(words, np.int32)

    def region(self, access: Access) -> Region:
        """The words of an access."""
        addresses, size = access.addresses, access.size
        if self.base:
            addresses = addresses - self.base
        if len(addresses) == 1:
            start = int(addresses[0])
            if not (start | size) & 3:
                return Region(1, slice(start >> 2, start + size >> 2))
            return _partial(addresses, size)
        bits = int(np.bitwise_or.reduce(addresses)) | size
        if bits & 3:
            return _partial(addresses, size)
        if size <= 16 and not bits & (size - 1):
            return Region(size >> 2, addresses >> (size.bit_length() - 1))
        if bits & 15:
            return Region(1, ((addresses >> 2)[:, None] + np.arange(size >> 2)).ravel())
        return Region(4, ((addresses >> 4)[:, None] + np.arange(size >> 4)).ravel())


TENSOR_COLUMNS = 512


def rectangle(access: Access) -> Region:
    """Cells of tensor memory: a rectangle where they are one."""
    cells = access.addresses >> 2
    lane, column = divmod(int(cells[0]), TENSOR_COLUMNS)
    last_lane, last_column = divmod(int(cells[-1]), TENSOR_COLUMNS)
    height, width = last_lane - lane + 1, last_column - column + 1
    if height > 0 and width > 0 and height * width == len(cells):
        lanes = slice(lane, last_lane + 1)
        return Rectangle(TENSOR_COLUMNS, (lanes, slice(column, last_column + 1)))
    return Region(1, cells)


def _partial(addresses: Any, size: int) -> Region:
    if size in (1, 2):
        per_word = WORD // size
        ordered = np.sort(addresses)
        words = ordered >> 2
        if (words[1:] != words[:-1]).all():
            return Region(1, words, False, ((1 << size) - 1) << (ordered & 3))
        first = ordered[::per_word]
        if len(ordered) == len(first) * per_word and not first[0] & 3:
            parts = ordered.reshape(-1, per_word)
            if (parts == first[:, None] + np.arange(0, WORD, size)).all() and not (first & 3).any():
                return Region(1, words[::per_word])
    places = (addresses[:, None] + np.arange(size)).ravel()
    words = np.unique(places >> 2)
    masks = np.zeros(len(words), np.int64)
    np.bitwise_or.at(masks, np.searchsorted(words, places >> 2), 1 << (places & 3))
    if (masks == 15).all():
        return Region(1, words)
    return Region(1, words, False, masks)


def distinct(numbers: Numbers) -> list[int]:
    """The different values of an array of entry numbers, which comes in runs."""
    flat = numbers.reshape(-1)
    if not flat.size:
        return []
    first = int(flat[0])
    if flat.size <= 64:
        return list(dict.fromkeys(flat.tolist()))
    if (flat == first).all():
        return [first]
    steps = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    return list(dict.fromkeys([first, *flat[steps].tolist()]))


def overlap(a: Access, b: Access) -> tuple[int, int]:
    """(first byte, number of bytes) that two accesses share."""
    first = max(int(a.addresses.min()), int(b.addresses.min()))
    end = min(int(a.addresses.max()) + a.size, int(b.addresses.max()) + b.size)
    if first >= end:
        return 0, 0
    shared = _touched(a, first, end)
    shared &= _touched(b, first, end)
    count = int(np.count_nonzero(shared))
    return (first + int(shared.argmax()), count) if count else (0, 0)


def _touched(access: Access, first: int, end: int) -> NDArray[np.bool_]:
    """For every byte from `first` to `end`, whether an access touches it."""
    starts = access.addresses - first
    inside = starts[(starts < end - first) & (starts + access.size > 0)]
    marks = np.zeros(end - first + 1, np.int32)
    np.add.at(marks, np.maximum(inside, 0), 1)
    np.add.at(marks, np.minimum(inside + access.size, end - first), -1)
    touched: NDArray[np.bool_] = np.cumsum(marks[:-1]) > 0
    return touched

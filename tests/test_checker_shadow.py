"""Shadow memory: which words an access covers, parts of words, sets of readers."""

from collections.abc import Sequence

import numpy as np
import pytest

from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.checker_kernels import Kernels
from ptxgen.emulator.checker_order import View
from ptxgen.emulator.checker_races import Races
from ptxgen.emulator.checker_report import Reporter
from ptxgen.emulator.clocks import ACCESSES, Domain
from ptxgen.emulator.observer import Access, AccessKind, Origin, Proxy, Space
from ptxgen.emulator.shadow import (
    Parts,
    Readers,
    Record,
    Shadow,
    Table,
    distinct,
    overlap,
    rectangle,
)

FULL = 0xFFFFFFFF


def access(
    addresses: Sequence[int], size: int, kind: AccessKind = AccessKind.WRITE, line: int = 1,
    lanes: int = FULL,
) -> Access:  # fmt: skip
    return Access(
        kind, Proxy.GENERIC, Space.SHARED, 0, np.array(addresses, np.int64), size,
        Origin(0, 0, lanes, line),
    )  # fmt: skip


class Memory:
    """A shadow of 4 KiB with some warps that touch it."""

    def __init__(self) -> None:
        self.domain = Domain()
        self.agents = [Agent(self.domain, 0, i, False) for i in range(4)]
        for agent in self.agents:
            agent.alive = FULL
        self.shadow = Shadow(Table(), 4096)
        self.reporter = Reporter(False)
        self.races = Races(self.reporter, Kernels())

    def touch(self, warp: int, what: Access) -> Record:
        agent = self.agents[warp]
        record = Record(
            what.kind, what.proxy, "", agent, what.origin, what,
            ((agent.first + ACCESSES, agent.mark()),),
        )  # fmt: skip
        region = self.shadow.region(what)
        act = self.races.read if what.kind is AccessKind.READ else self.races.write
        act(self.shadow, region, record, (View(agent, FULL, agent.clock),))
        return record

    @property
    def codes(self) -> list[str]:
        return [f.code for f in self.reporter.found.values()]


@pytest.mark.parametrize(
    ("addresses", "size", "words"),
    [
        ((64,), 32, range(16, 24)),
        ((0, 16, 48), 16, (0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15)),
        ((8, 256), 8, (2, 3, 64, 65)),
        ((128, 512), 128, (*range(32, 64), *range(128, 160))),
        ((4, 40), 12, (1, 2, 3, 10, 11, 12)),
        ((0, 2, 6), 2, (0, 1)),
        ((5,), 1, (1,)),
    ],
)
def test_an_access_covers_its_words(
    addresses: Sequence[int], size: int, words: Sequence[int]
) -> None:
    shadow = Shadow(Table(), 4096)
    region = shadow.region(access(addresses, size))
    region.put(shadow.writers, 7)
    assert np.flatnonzero(shadow.writers == 7).tolist() == list(words)


def test_half_words_that_fill_words_count_as_whole() -> None:
    region = Shadow(Table(), 4096).region(access(range(100, 164, 2), 2))
    assert region.whole


def test_stores_of_different_bytes_of_a_word_do_not_race() -> None:
    memory = Memory()
    memory.touch(0, access((8,), 2, line=1))
    memory.touch(1, access((10,), 2, line=2))
    memory.touch(2, access((9,), 1, line=3))
    assert memory.codes == ["RACE"]
    assert [f.other_line for f in memory.reporter.found.values()] == [1]
    entry = memory.shadow.table.entries[int(memory.shadow.writers[2])]
    assert isinstance(entry, Parts)
    assert sorted(mask for mask, _ in entry.members) == [1, 2, 12]


def test_a_write_meets_every_reader_of_its_bytes() -> None:
    memory = Memory()
    memory.touch(0, access((0,), 64))
    start = memory.codes
    for warp in (1, 2, 3):
        memory.touch(warp, access((0,), 64, AccessKind.READ, line=10 + warp))
    memory.reporter.found.clear()
    memory.touch(0, access((32,), 16, line=20))
    assert start == []
    assert {f.other_line for f in memory.reporter.found.values()} == {11, 12, 13}


def test_a_later_read_of_the_same_warp_replaces_its_earlier_one() -> None:
    memory = Memory()
    for line in (1, 2, 3):
        last = memory.touch(0, access((0,), 64, AccessKind.READ, line=line))
    assert set(memory.shadow.readers[:16].tolist()) == {last.number}


def test_an_ordered_reader_replaces_the_one_before_it() -> None:
    memory = Memory()
    first, second = memory.agents[:2]
    memory.touch(0, access((0,), 16, AccessKind.READ))
    first.release(FULL, second.clock)
    last = memory.touch(1, access((0,), 16, AccessKind.READ))
    assert memory.shadow.readers[0] == last.number


def test_the_tail_of_a_buffer_is_found_by_its_bytes() -> None:
    memory = Memory()
    memory.touch(0, access((0,), 4096))
    memory.touch(1, access((4092,), 4, AccessKind.READ))
    (finding,) = memory.reporter.found.values()
    assert finding.addresses == (4092, 4)


def test_reading_what_nobody_wrote_is_reported_with_its_bytes() -> None:
    memory = Memory()
    memory.touch(0, access((0,), 16))
    memory.touch(0, access((0,), 32, AccessKind.READ))
    (finding,) = memory.reporter.found.values()
    assert (finding.code, finding.addresses) == ("UNINIT-SMEM", (16, 16))


def test_compacting_keeps_what_the_shadow_says() -> None:
    memory = Memory()
    for i in range(300):
        memory.touch(i % 4, access((16 * (i % 8),), 16, line=i))
        memory.touch(i % 3, access((16 * (i % 8),), 16, AccessKind.READ, line=1000 + i))
    table, shadow = memory.shadow.table, memory.shadow

    def lines(array: "np.ndarray[tuple[int, ...], np.dtype[np.int32]]") -> list[list[int]]:
        return [sorted(r.origin.line for r in table.records(int(n))) for n in array[:40]]

    before = lines(shadow.writers), lines(shadow.readers)
    size = len(table.entries)
    table.compact([shadow])
    assert (lines(shadow.writers), lines(shadow.readers)) == before
    assert len(table.entries) < size / 4
    assert all(e is None or e.number == i for i, e in enumerate(table.entries))


def test_sets_of_readers_are_shared() -> None:
    memory = Memory()
    for warp in (0, 1):
        memory.touch(warp, access((0,), 1024, AccessKind.READ))
    numbers = set(memory.shadow.readers[:256].tolist())
    assert len(numbers) == 1
    assert isinstance(memory.shadow.table.entries[numbers.pop()], Readers)


@pytest.mark.parametrize("size", [3, 64, 1000])
def test_distinct_finds_every_value(size: int) -> None:
    values = np.random.default_rng(size).integers(0, 5, size).astype(np.int32)
    assert sorted(distinct(values)) == sorted(set(values.tolist()))


def test_overlap_counts_shared_bytes() -> None:
    a = access((0, 100, 200), 16)
    assert overlap(a, access((8,), 100)) == (8, 16)
    assert overlap(a, access((300,), 4)) == (0, 0)
    assert overlap(a, access((16,), 84)) == (0, 0)


def test_a_rectangle_of_tensor_memory_is_one_slice() -> None:
    lanes, columns = np.arange(32, 64), np.arange(16, 48)
    cells = (lanes[:, None] * 512 + columns).ravel() * 4
    shadow = Shadow(Table(), 128 * 512 * 4)
    region = rectangle(access(cells.tolist(), 4))
    region.put(shadow.writers, 3)
    assert sorted(np.flatnonzero(shadow.writers) * 4) == sorted(cells)
    assert len(region.get(shadow.writers)) == len(cells)
    ragged = rectangle(access(cells[:-5].tolist(), 4))
    assert isinstance(ragged.index, np.ndarray)

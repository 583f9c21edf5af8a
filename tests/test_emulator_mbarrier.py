"""mbarriers: the completion rule, parity, ranges and lifecycle of PTX ISA 9.0 and an H200."""

from typing import Any

import pytest

from ptxgen.emulator.mbarrier import MAX_COUNT, MbarrierTable, pending_count
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.observer import Observer
from ptxgen.errors import BarrierError, MisalignedError, OutOfBoundsError

AT = 0x408


def table(count: int = 1, observer: Observer | None = None) -> MbarrierTable:
    barriers = MbarrierTable(SharedMemory(0x800), observer)
    barriers.init(AT, count)
    return barriers


def test_fresh_barrier_passes_parity_1_and_holds_parity_0() -> None:
    barriers = table()
    assert barriers.test(AT, 1)
    assert not barriers.test(AT, 0)


def test_phase_completes_with_the_last_arrival_and_flips_parity() -> None:
    barriers = table(3)
    assert not barriers.arrive(AT).completed
    assert barriers.arrive(AT, 2).completed
    assert barriers.test(AT, 0)
    assert not barriers.test(AT, 1)
    assert barriers.at(AT).pending == 3


def test_bytes_hold_the_phase_open_after_the_last_arrival() -> None:
    barriers = table()
    assert not barriers.arrive(AT, tx_bytes=96).completed
    assert not barriers.complete_tx(AT, 32)
    assert barriers.complete_tx(AT, 64)


def test_bytes_may_come_before_they_are_expected() -> None:
    barriers = table()
    assert not barriers.complete_tx(AT, 128)
    assert barriers.at(AT).tx == -128
    assert barriers.arrive(AT, tx_bytes=128).completed


def test_expect_tx_alone_does_not_arrive() -> None:
    barriers = table()
    barriers.expect_tx(AT, 16)
    assert barriers.at(AT).pending == 1


@pytest.mark.parametrize("off_by", [-16, 16])
def test_wrong_byte_count_never_completes(off_by: int) -> None:
    barriers = table()
    barriers.arrive(AT, tx_bytes=64)
    assert not barriers.complete_tx(AT, 64 + off_by)
    assert barriers.at(AT).tx == -off_by


def test_arrival_beyond_the_pending_count_traps() -> None:
    barriers = table(2)
    with pytest.raises(BarrierError, match="only 2 pending"):
        barriers.arrive(AT, 3)
    barriers.arrive(AT, 2, tx_bytes=16)
    with pytest.raises(BarrierError, match="only 0 pending"):
        barriers.arrive(AT)


def test_arrive_drop_lowers_later_phases_and_may_reach_zero() -> None:
    barriers = table(2)
    barriers.arrive(AT, drop=True)
    assert barriers.arrive(AT).completed
    assert barriers.at(AT).pending == 1
    assert barriers.arrive(AT, drop=True).completed
    with pytest.raises(BarrierError, match="pending"):
        barriers.arrive(AT)


@pytest.mark.parametrize("nbytes", [MAX_COUNT + 1, -MAX_COUNT - 1])
def test_transaction_count_out_of_range_traps(nbytes: int) -> None:
    barriers = table()
    with pytest.raises(BarrierError, match="transaction bytes"):
        barriers.complete_tx(AT, nbytes)


@pytest.mark.parametrize("count", [0, MAX_COUNT + 1])
def test_init_count_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(BarrierError, match="count"):
        table(count)


def test_init_over_a_live_barrier_is_refused_unless_untouched() -> None:
    barriers = table(2)
    barriers.init(AT, 2)
    with pytest.raises(BarrierError, match="live"):
        barriers.init(AT, 3)
    barriers.arrive(AT)
    with pytest.raises(BarrierError, match="live"):
        barriers.init(AT, 2)


def test_use_before_init_and_after_inval_is_named() -> None:
    barriers = table()
    barriers.inval(AT)
    for use in (barriers.arrive, barriers.inval, lambda at: barriers.test(at, 0)):
        with pytest.raises(BarrierError, match="no mbarrier lives"):
            use(AT)
    barriers.init(AT, 1)


def test_barrier_needs_8_bytes_inside_the_window() -> None:
    barriers = table()
    with pytest.raises(MisalignedError):
        barriers.init(0x404, 1)
    with pytest.raises(OutOfBoundsError):
        barriers.init(0x800, 1)


def test_memory_shows_the_word_only_after_inval() -> None:
    smem = SharedMemory(0x800)
    smem.store_int(AT, 0x1234, 8)
    barriers = MbarrierTable(smem)
    barriers.init(AT, 1)
    assert smem.load_int(AT, 8) == 0x1234
    barriers.inval(AT)
    assert smem.load_int(AT, 8) == 0x7FFFF800001FFFFE


def test_word_of_a_short_transaction_shows_the_missing_bytes() -> None:
    barriers = table()
    barriers.arrive(AT, tx_bytes=64)
    barriers.complete_tx(AT, 48)
    assert barriers.at(AT).word() >> 21 & 0x1FFFFF == -16 & 0x1FFFFF


def test_state_token_is_tested_by_its_parity_alone() -> None:
    barriers = table()
    old = barriers.arrive(AT).state
    assert pending_count(old) == 1
    assert barriers.test_state(AT, old)
    barriers.arrive(AT)
    assert not barriers.test_state(AT, old)


def test_no_complete_must_not_be_last() -> None:
    barriers = table(2)
    barriers.arrive(AT, no_complete=True)
    with pytest.raises(BarrierError, match="noComplete"):
        barriers.arrive(AT, no_complete=True)


def test_cp_async_arrive_raises_the_pending_count_first() -> None:
    barriers = table()
    barriers.add_pending(AT)
    assert not barriers.arrive(AT).completed
    assert barriers.arrive(AT).completed


def test_observer_sees_every_step_in_order() -> None:
    class Log(Observer):
        def __init__(self) -> None:
            self.kinds: list[tuple[Any, ...]] = []

        def on_barrier(self, event: Any) -> None:
            self.kinds.append((event.kind, event.phase, event.tx, event.pending))

    log = Log()
    barriers = table(1, log)
    barriers.arrive(AT, tx_bytes=16)
    barriers.test(AT, 0)
    barriers.complete_tx(AT, 16)
    barriers.test(AT, 0)
    assert log.kinds == [
        ("init", 0, 0, 1), ("expect_tx", 0, 16, 1), ("arrive", 0, 16, 0), ("wait_failed", 0, 16, 0),
        ("complete_tx", 0, 0, 0), ("phase", 0, 0, 1), ("wait", 0, 0, 1),
    ]  # fmt: skip

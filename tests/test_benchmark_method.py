"""The method of measurement, on contenders whose times are made up."""

import pytest

from ptxgen.benchmark.method import (
    Contender,
    Method,
    Samples,
    compare,
    order_of,
    paired_ratio,
)

QUICK = Method(slot_s=1.0, lead_share=0.5, settle_s=0.0, min_rounds=2, max_rounds=6)


class Bench:
    """Contenders on one clock; remembers who ran, and with how many replays."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[tuple[str, int, int]] = []

    def clock(self) -> float:
        return self.now

    def contender(self, name: str, seconds: float, calls: int = 1, drift: float = 0.0) -> Contender:
        def replay(lead: int, count: int) -> float:
            self.ran.append((name, lead, count))
            elapsed = (seconds + drift * self.now) * calls
            self.now += (lead + count) * elapsed
            return count * elapsed

        return Contender(name, calls, replay)


def test_samples_are_seconds_per_call() -> None:
    bench = Bench()
    found = compare([bench.contender("a", 0.001, calls=20)], QUICK, clock=bench.clock)
    assert found["a"].median == pytest.approx(0.001)
    assert len(found["a"].values) == QUICK.max_rounds


def test_a_slot_is_filled_with_as_many_replays_as_it_needs() -> None:
    bench = Bench()
    compare([bench.contender("a", 0.01)], QUICK, clock=bench.clock)
    assert bench.ran[-1] == ("a", 50, 100)


def test_every_contender_runs_once_in_every_round_in_every_place() -> None:
    contenders = [Bench().contender(name, 1.0) for name in "abcd"]
    orders = [[c.name for c in order_of(contenders, number)] for number in range(8)]
    assert all(sorted(order) == list("abcd") for order in orders)
    assert all({order[place] for order in orders} == set("abcd") for place in range(4))


def test_a_clock_that_slows_down_leaves_paired_ratios_right() -> None:
    bench = Bench()
    found = compare(
        [bench.contender("slow", 0.2, drift=1e-3), bench.contender("quick", 0.1, drift=5e-4)],
        QUICK, clock=bench.clock,
    )  # fmt: skip
    assert found["slow"].spread > 0.02
    assert paired_ratio(found["slow"], found["quick"]) == pytest.approx(2.0, rel=0.02)


def test_rounds_stop_when_the_time_is_up_but_not_before_the_least_number() -> None:
    bench = Bench()
    found = compare([bench.contender("a", 1.0)], QUICK, seconds=0.0, clock=bench.clock)
    assert len(found["a"].values) == QUICK.min_rounds


def test_nothing_is_sampled_before_the_gpu_has_settled() -> None:
    bench = Bench()
    method = Method(slot_s=1.0, lead_share=0.0, settle_s=100.0, min_rounds=2, max_rounds=2)
    compare([bench.contender("a", 1.0)], method, clock=bench.clock)
    assert bench.now >= 100.0 + method.max_rounds
    assert len(bench.ran) > 100


def test_the_median_of_ratios_is_taken_within_rounds() -> None:
    ours, peer = Samples((1.0, 2.0, 4.0)), Samples((2.0, 4.0, 8.0))
    assert paired_ratio(peer, ours) == 2.0

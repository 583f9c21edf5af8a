"""method: how contenders are timed against each other.

All contenders run in rounds, one time slot each. The GPU's clock depends on what ran just before
(power), so the order is reversed with every round and turned on with every second one, each slot
starts with calls that are not timed, and ratios are taken within a round. Before the first
round all contenders run until the clock has settled.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """How long and how often."""

    slot_s: float = 0.02
    """Timed part of one contender's slot in a round, at least."""
    lead_share: float = 0.25
    """Calls before the timed ones, as a share of them."""
    settle_s: float = 0.2
    """How long all contenders run before the first round."""
    min_rounds: int = 5
    max_rounds: int = 15


@dataclass(frozen=True)
class Contender:
    """Something that can be timed."""

    name: str
    calls: int
    """Kernel calls of one replay."""
    replay: Callable[[int, int], float]
    """replay(lead, count): run `lead` replays, then `count` timed ones; seconds of the latter."""
    close: Callable[[], None] = lambda: None
    """Gives back what the contender holds."""
    holds: object = None
    """What must live as long as the contender: modules and buffers of its graph."""


@dataclass(frozen=True)
class Samples:
    """Seconds per call, one value per round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.values) - min(self.values)) / self.median


def compare(
    contenders: Sequence[Contender],
    method: Method,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Samples]:
    """Time all contenders in paired rounds; samples by name.

    seconds: after this long no round is begun, except for the least number of them.
    """
    began = clock()
    counts = {c.name: _replays(method.slot_s, c.replay(1, 1)) for c in contenders}
    settled = clock() + method.settle_s
    while True:
        for c in contenders:
            counts[c.name] = _replays(method.slot_s, c.replay(0, counts[c.name]) / counts[c.name])
        if clock() >= settled:
            break
    values: dict[str, list[float]] = {c.name: [] for c in contenders}
    for number in range(method.max_rounds):
        if number >= method.min_rounds and clock() - began > seconds:
            break
        for c in order_of(contenders, number):
            count = counts[c.name]
            elapsed = c.replay(math.ceil(count * method.lead_share), count)
            values[c.name].append(elapsed / (count * c.calls))
    return {name: Samples(tuple(v)) for name, v in values.items()}


def order_of(contenders: Sequence[Contender], number: int) -> list[Contender]:
    """The order in round `number`: reversed in odd rounds, one place further every second round."""
    first = number // 2 % len(contenders)
    order = [*contenders[first:], *contenders[:first]]
    return order[::-1] if number % 2 else order


def paired_ratio(numerator: Samples, denominator: Samples) -> float:
    """Median over the rounds of numerator / denominator."""
    pairs = zip(numerator.values, denominator.values, strict=True)
    return statistics.median(a / b for a, b in pairs)


def _replays(slot_s: float, seconds_per_replay: float) -> int:
    return max(1, math.ceil(slot_s / max(seconds_per_replay, 1e-9)))

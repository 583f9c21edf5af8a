"""Recurrence: warps that are back in a state of before while nothing changes never get on."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.fragment import Accumulator, Fragment, value_of
from ptxgen.emulator.values import UNDEFINED

if TYPE_CHECKING:
    from ptxgen.emulator.warp import Warp

MIN_TURNS = 32
"""Turns of each warp before it counts: a random schedule lets try_waits fail for no reason."""

LEAPS = tuple(int(1.618 * 2**k) for k in (12, 20, 26, 29, 31, 31, 32, 36, 40, 44, 48))
"""What the clock jumps ahead by, each time that warps repeat themselves and look at it: hours in
all. No power of two, so that its low half moves, too."""


class Recurrence:
    """States of warps at the ends of their turns, since something last changed.

    A warp that has nothing from others but barriers repeats itself for ever once it is in a state
    that it has been in: the same registers on which anything depends, at the same place. It must be
    told of anything else that an instruction may see change.
    """

    def __init__(self) -> None:
        self._seen: dict[Warp, set[int]] = {}
        self._turns: dict[Warp, int] = {}
        self._back: set[Warp] = set()
        self.timed = False
        """Whether a warp has looked at a clock, so that time alone may let it go on."""
        self._num_leaps = 0

    def forget(self) -> None:
        """Something has changed."""
        self._num_leaps = 0
        self._restart()

    def leap(self) -> int:
        """By how much time leaps now, to see whether that lets a warp go on; 0 if it does not."""
        if not self.timed or self._num_leaps == len(LEAPS):
            return 0
        self._num_leaps += 1
        self._restart()
        return LEAPS[self._num_leaps - 1]

    def _restart(self) -> None:
        if self._seen:
            self._seen.clear()
            self._turns.clear()
            self._back.clear()
        self.timed = False

    def note(self, warp: "Warp") -> None:
        """A warp has had its turn."""
        self._turns[warp] = self._turns.get(warp, 0) + 1
        if warp in self._back:
            return
        seen = self._seen.setdefault(warp, set())
        state = _state(warp)
        if state in seen:
            self._back.add(warp)
        seen.add(state)

    def holds(self, running: Iterable["Warp"]) -> bool:
        """Whether all warps that run, or have run, repeat themselves."""
        warps = {*running, *self._turns}
        return all(w in self._back and self._turns[w] >= MIN_TURNS for w in warps)


def _state(warp: "Warp") -> int:
    """What the warp does next and all that it depends on, but memory and barriers."""
    return hash(
        tuple(
            (
                f.mask,
                id(f.next),
                None if f.wait is None else (f.wait.kind, f.wait.line),
                f.local_base,
                _deciding_values(f),
                tuple((id(frame.resume), _values(frame.registers)) for frame in f.frames),
            )
            for f in warp.fragments
        )
    )


def _deciding_values(fragment: Fragment) -> tuple[Any, ...]:
    version = fragment.next
    deciding = version.program.deciding
    return _values(
        [
            value_of(fragment.registers, number, form)
            for number, form in version.context
            if form != UNDEFINED and deciding >> number & 1
        ]
    )


def _values(registers: list[Any]) -> tuple[Any, ...]:
    return tuple(
        value.tobytes()
        if isinstance(value, np.ndarray)
        else id(value)
        if isinstance(value, Accumulator)
        else value
        for value in registers
    )

"""Recurrence: warps that are back in a state of before while nothing changes never get on."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.fragment import Accumulator

if TYPE_CHECKING:
    from ptxgen.emulator.warp import Warp

MIN_TURNS = 32
"""Turns of each warp before it counts: a random schedule lets try_waits fail for no reason."""


class Recurrence:
    """States of warps at the ends of their turns, since something last changed.

    A warp that executes without input from others repeats itself for ever once it is in a state
    that it has been in. It must be told of anything else that an instruction may see change.
    """

    def __init__(self) -> None:
        self._seen: dict[Warp, set[int]] = {}
        self._turns: dict[Warp, int] = {}
        self._back: set[Warp] = set()

    def forget(self) -> None:
        """Something has changed."""
        if self._seen:
            self._seen.clear()
            self._turns.clear()
            self._back.clear()

    def note(self, warp: "Warp") -> None:
        """A warp has used up its turn."""
        self._turns[warp] = self._turns.get(warp, 0) + 1
        if warp in self._back:
            return
        seen = self._seen.setdefault(warp, set())
        state = _state(warp)
        if state in seen:
            self._back.add(warp)
        seen.add(state)

    def holds(self, warps: Iterable["Warp"]) -> bool:
        """Whether all of some warps repeat themselves."""
        return all(w in self._back and self._turns[w] >= MIN_TURNS for w in warps)


def _state(warp: "Warp") -> int:
    """What the warp does next and all that it depends on, but memory and barriers."""
    return hash(
        tuple(
            (
                f.mask,
                id(f.next),
                id(f.wait),
                f.local_base,
                _values(f.registers),
                tuple((id(frame.resume), _values(frame.registers)) for frame in f.frames),
            )
            for f in warp.fragments
        )
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

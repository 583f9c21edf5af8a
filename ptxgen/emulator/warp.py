"""Warps: which of their fragments runs, parting and meeting, and the way out."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.fragment import Fragment
from ptxgen.emulator.memory import LocalMemory
from ptxgen.emulator.pending import Pending, ThreadGroups

if TYPE_CHECKING:
    from ptxgen.emulator.cta import Cta
    from ptxgen.emulator.warpgroup import WgmmaQueue


class Warp:
    """One warp. The fragment with the smallest pc runs; where one waits, another may go on."""

    def __init__(self, cta: "Cta", index: int) -> None:
        self.cta = cta
        self.index = index
        ntid = cta.ntid
        first = 32 * index
        linear = np.arange(first, first + 32)
        self.tid = (
            (linear % ntid[0]).astype(np.uint32),
            (linear // ntid[0] % ntid[1]).astype(np.uint32),
            (linear // (ntid[0] * ntid[1])).astype(np.uint32),
        )
        """%tid.x, y, z per lane."""
        self.first_tid = int(self.tid[0][0])
        total = ntid[0] * ntid[1] * ntid[2]
        count = min(32, total - first)
        self.alive = (1 << count) - 1
        """Lanes that have not exited."""
        self.queued = False
        self.yielded = False
        """It polls for something: let the others run first."""
        self.polled_epoch = -1
        """Machine's epoch when it last used up its turn."""
        self.fragments: list[Fragment] = []
        self.local: LocalMemory | None = None
        self.groups: dict[str, ThreadGroups] = {}
        """Bulk and cp.async groups of its threads."""
        self.tmem_loading = 0
        """Registers of tcgen05.ld that were not waited for. Observed runs only."""
        self.tmem_stores: list[Pending] = []
        """tcgen05.st that may not be done."""
        self.tensor_streams: dict[int, list[Pending]] = {}
        """Per lane, its mma, cp, shift and commit that may not be done."""
        self.wgmma: WgmmaQueue
        """Set by its warpgroup."""
        self.registers = 0
        """setmaxnreg's current count; 0 = as launched."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"CTA {self.cta.index} warp {self.index}"

    def start(self, version: Any, num_slots: int) -> None:
        """Put all lanes at an entry."""
        fragment = Fragment(self, self.alive, [0] * num_slots)
        fragment.next = version
        self.fragments.append(fragment)

    def local_memory(self) -> LocalMemory:
        """Local memory of its threads, made when first used."""
        if self.local is None:
            machine = self.cta.machine
            self.local = LocalMemory(machine.image.local_bytes, track=machine.tracks)
        return self.local

    def add(self, fragment: Fragment) -> None:
        """A fragment has parted from another one."""
        self.fragments.append(fragment)

    def leave(self, fragment: Fragment) -> None:
        """All lanes of a fragment exit."""
        self.alive &= ~fragment.mask
        self.cta.machine.num_instructions += fragment.count
        fragment.count = 0
        self.fragments.remove(fragment)
        self.cta.lanes_left(self, fragment.mask)

    def runnable(self) -> Fragment | None:
        """The fragment to run: the smallest pc among those that can."""
        best: Fragment | None = None
        for fragment in self.fragments:
            wait = fragment.wait
            if wait is not None:
                if wait.kind != "join" or self.alive & wait.members & ~fragment.mask:
                    continue
                self._tell_absent(fragment, wait.missing & ~fragment.mask)
                fragment.wait = None
            if best is None or _pc(fragment) < _pc(best):
                best = fragment
        return best if best is not None else self._meeting()

    def _tell_absent(self, fragment: Fragment, lanes: int) -> None:
        """Lanes have exited that a fragment's join waited for."""
        wait, observer = fragment.wait, self.cta.machine.observer
        if lanes and observer is not None and wait is not None and not wait.anywhere:
            observer.on_absent_lanes(fragment.origin(wait.line), lanes)

    def _meeting(self) -> Fragment | None:
        """Let fragments go that stand at different barriers of a kind and are all that is named."""
        for kind in ("warp", "cta"):
            waiting = [
                (f, f.wait)
                for f in self.fragments
                if f.wait is not None and f.wait.anywhere == kind
            ]
            away = self.alive & ~sum(f.mask for f, _ in waiting)
            found = [f for f, wait in waiting if not away & wait.members]
            for fragment in found:
                fragment.wait = None
                fragment.passes = True
            if found:
                return found[0]
        return None

    def run(self, turns: int) -> int:
        """Run versions until none can go on or `turns` are used up; turns left."""
        self.yielded = False
        while turns > 0 and not self.yielded:
            if len(self.fragments) == 1:
                fragment = self.fragments[0]
                if fragment.wait is not None and self.runnable() is None:
                    return turns
                turns = self._run_alone(fragment, turns)
            else:
                found = self.runnable()
                if found is None:
                    return turns
                turns = self._run_apart(found, turns)
            if not self.fragments:
                return turns
        return 0

    def _run_alone(self, fragment: Fragment, turns: int) -> int:
        version = fragment.next
        registers = fragment.registers
        fragment.next = None
        while turns > 0:
            turns -= 1
            following = version(fragment, registers)
            if following is None:
                if fragment.next is None:
                    fragment.next = version
                break
            version = following
            registers = fragment.registers
        else:
            fragment.next = version
        self._settle(fragment)
        return turns

    def _run_apart(self, fragment: Fragment, turns: int) -> int:
        """Run one of several fragments up to where it may meet another."""
        here = _pc(fragment)
        limit = min(
            (_pc(f) for f in self.fragments if f is not fragment and _pc(f) > here),
            default=1 << 62,
        )
        depth = len(fragment.frames)
        while turns > 0:
            turns -= 1
            version = fragment.next
            fragment.next = None
            following = version(fragment, fragment.registers)
            if following is None:
                if fragment.next is None:
                    fragment.next = version
                break
            fragment.next = following
            if following.pc >= limit or len(fragment.frames) != depth:
                break
        self._settle(fragment)
        self._meet(fragment)
        return turns

    def _lives(self, fragment: Fragment) -> bool:
        return fragment in self.fragments

    def _settle(self, fragment: Fragment) -> None:
        machine = self.cta.machine
        machine.num_instructions += fragment.count
        fragment.count = 0
        if machine.num_instructions > machine.options.max_instructions:
            machine.over_budget(fragment)

    def _meet(self, fragment: Fragment) -> None:
        """Merge fragments that stand at the pc where this one has arrived."""
        if not self._lives(fragment) or fragment.next is None:
            return
        if fragment.wait is not None and fragment.wait.kind != "join":
            return
        for other in tuple(self.fragments):
            if (
                other is not fragment
                and other.next is not None
                and (other.wait is None or other.wait.kind == "join")
                and other.next.pc == fragment.next.pc
                and other.next.program is fragment.next.program
                and len(other.frames) == len(fragment.frames)
                and all(a is b for a, b in zip(other.frames, fragment.frames, strict=True))
            ):
                fragment.wait = None
                fragment.merge(other)
                self.fragments.remove(other)


def _pc(fragment: Fragment) -> int:
    """Order of fragments: deeper calls first, then position."""
    return int(fragment.next.pc) - (len(fragment.frames) << 40)

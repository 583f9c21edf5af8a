"""mbarrier objects: phases, arrivals and transaction bytes.

Measured on an H200: the word's layout, its range errors, and that an ordinary load of a live
barrier shows the bytes from before its init; only inval makes the word appear in memory.
Source: PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier";
docs/hardware-findings.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.observer import AsyncOperation, BarrierEvent, Observer, Origin
from ptxgen.errors import BarrierError, MisalignedError

MAX_COUNT = (1 << 20) - 1
"""Largest arrival count and magnitude of the transaction count."""


@dataclass(slots=True)
class Mbarrier:
    """State of one mbarrier."""

    expected: int
    """Arrivals of each phase."""
    pending: int
    """Arrivals that the current phase still needs."""
    tx: int = 0
    """Bytes announced and not yet delivered; negative when bytes came first."""
    phase: int = 0
    """Completed phases; only its parity is visible to a kernel."""

    def word(self) -> int:
        """The 64-bit state: bit 63 parity, 62:43 -pending, 41:21 -tx, 20:1 -expected."""
        return (
            (self.phase & 1) << 63
            | (-self.pending & 0xFFFFF) << 43
            | (-self.tx & 0x1FFFFF) << 21
            | (-self.expected & 0xFFFFF) << 1
        )

    def __str__(self) -> str:
        return (
            f"phase {self.phase} (parity {self.phase & 1}), {self.pending} of {self.expected} "
            f"arrivals pending, {self.tx} B outstanding"
        )


class Arrival(NamedTuple):
    """Result of an arrive."""

    state: int
    """State token: the word before the arrive."""
    completed: bool
    """Whether the phase completed: wake who waits on the barrier."""


class MbarrierTable:
    """The live mbarriers of one CTA, by shared memory offset.

    Every operation takes the origin for the observer only; None when the hardware acts.
    """

    def __init__(self, smem: SharedMemory, observer: Observer | None = None) -> None:
        self._smem = smem
        self._cta = smem.cta
        self._observer = observer
        self._live: dict[int, Mbarrier] = {}

    @property
    def live(self) -> dict[int, Mbarrier]:
        """All live barriers: offset -> state. For reports; do not change it."""
        return self._live

    def at(self, offset: int) -> Mbarrier:
        """The live barrier at `offset`.

        Raises: BarrierError if there is none.
        """
        found = self._live.get(offset)
        if found is None:
            raise BarrierError(
                f"no mbarrier lives at shared offset {offset:#x} of CTA {self._cta}; it must be "
                f"initialised before use, live ones: {self._names()}"
            )
        return found

    def init(self, offset: int, count: int, origin: Origin | None = None) -> None:
        """mbarrier.init. Repeating the init of an untouched barrier with its own count is a no-op,
        as when several lanes execute it.

        Raises: BarrierError for a count out of range or a live barrier, MisalignedError,
            OutOfBoundsError.
        """
        if offset & 7:
            raise MisalignedError(f"an mbarrier needs 8-byte alignment, got offset {offset:#x}")
        if not 1 <= count <= MAX_COUNT:
            raise BarrierError(
                f"mbarrier.init at {offset:#x}: count must be in [1, {MAX_COUNT}], got {count}"
            )
        self._smem.require(offset, 8)
        fresh = Mbarrier(count, count)
        old = self._live.get(offset)
        if old is not None and old != fresh:
            raise BarrierError(
                f"mbarrier.init at {offset:#x} over a live mbarrier ({old}); "
                "execute mbarrier.inval first"
            )
        self._live[offset] = fresh
        if self._observer is not None:
            self._report("init", offset, fresh, 0, count, origin)

    def inval(self, offset: int, origin: Origin | None = None) -> None:
        """mbarrier.inval: the bytes may be reused, and hold the last state word.

        Raises: BarrierError.
        """
        barrier = self.at(offset)
        del self._live[offset]
        self._smem.write(offset, barrier.word().to_bytes(8, "little"))
        if self._observer is not None:
            self._report("inval", offset, barrier, barrier.phase, 0, origin)

    def arrive(
        self,
        offset: int,
        count: int = 1,
        *,
        tx_bytes: int = 0,
        drop: bool = False,
        no_complete: bool = False,
        semantics: str = "release",
        scope: str = "cta",
        origin: Origin | None = None,
        operation: AsyncOperation | None = None,
    ) -> Arrival:
        """mbarrier.arrive, with `tx_bytes` arrive.expect_tx, with `drop` arrive_drop.

        Raises: BarrierError when more arrive than are pending, when the transaction count leaves
            its range, or when an arrive.noComplete completes the phase.
        """
        barrier = self.at(offset)
        if tx_bytes:
            self._add_tx(offset, barrier, tx_bytes, origin)
        if not 1 <= count <= MAX_COUNT:
            raise BarrierError(
                f"mbarrier at {offset:#x}: an arrive count must be in [1, {MAX_COUNT}], got {count}"
            )
        if count > barrier.pending:
            raise BarrierError(
                f"mbarrier at {offset:#x} of CTA {self._cta}: {count} arrival(s) with only "
                f"{barrier.pending} pending ({barrier}); the hardware traps here. Check the init "
                "count, and that nobody arrives twice in one phase"
            )
        state = barrier.word()
        phase = barrier.phase
        barrier.pending -= count
        if drop:
            barrier.expected -= count
        if no_complete and barrier.pending == 0 and barrier.tx == 0:
            raise BarrierError(
                f"mbarrier at {offset:#x}: arrive.noComplete must not complete the phase, "
                "but it was the last arrival"
            )
        if self._observer is not None:
            kind = "arrive_drop" if drop else "arrive"
            self._report(
                kind, offset, barrier, phase, count, origin, semantics, scope, operation
            )  # fmt: skip
        return Arrival(state, self._complete(offset, barrier))

    def add_pending(self, offset: int, count: int = 1, origin: Origin | None = None) -> None:
        """Raise the pending count, as cp.async.mbarrier.arrive without .noinc does when issued.

        Raises: BarrierError when the count leaves its range.
        """
        barrier = self.at(offset)
        barrier.pending += count
        if barrier.pending > MAX_COUNT:
            raise BarrierError(
                f"mbarrier at {offset:#x}: pending arrivals must stay <= {MAX_COUNT}, "
                f"got {barrier.pending}"
            )

    def expect_tx(self, offset: int, nbytes: int, origin: Origin | None = None) -> None:
        """mbarrier.expect_tx: announce bytes.

        Raises: BarrierError when the transaction count leaves its range.
        """
        self._add_tx(offset, self.at(offset), nbytes, origin)

    def complete_tx(
        self,
        offset: int,
        nbytes: int,
        origin: Origin | None = None,
        operation: AsyncOperation | None = None,
    ) -> bool:
        """Deliver bytes, as a copy does; True if the phase completed.

        Raises: BarrierError when the transaction count leaves its range.
        """
        barrier = self.at(offset)
        phase = barrier.phase
        barrier.tx -= nbytes
        self._check_tx(offset, barrier)
        if self._observer is not None:
            self._report(
                "complete_tx", offset, barrier, phase, nbytes, origin, operation=operation
            )  # fmt: skip
        return self._complete(offset, barrier)

    def test(
        self,
        offset: int,
        parity: int,
        *,
        semantics: str = "acquire",
        scope: str = "cta",
        origin: Origin | None = None,
    ) -> bool:
        """test_wait.parity or try_wait.parity: whether the phase of that parity has completed.

        On a fresh barrier parity 1 passes at once and parity 0 waits.
        Raises: BarrierError if no barrier lives there.
        """
        barrier = self.at(offset)
        done = (barrier.phase & 1) != (parity & 1)
        if self._observer is not None:
            kind, phase = ("wait", barrier.phase - 1) if done else ("wait_failed", barrier.phase)
            self._report(kind, offset, barrier, phase, 0, origin, semantics, scope)
        return done

    def test_state(
        self,
        offset: int,
        state: int,
        *,
        semantics: str = "acquire",
        scope: str = "cta",
        origin: Origin | None = None,
    ) -> bool:
        """test_wait or try_wait with a state token: only the token's parity bit counts."""
        return self.test(offset, state >> 63, semantics=semantics, scope=scope, origin=origin)

    def _add_tx(self, offset: int, barrier: Mbarrier, nbytes: int, origin: Origin | None) -> None:
        barrier.tx += nbytes
        self._check_tx(offset, barrier)
        if self._observer is not None:
            self._report("expect_tx", offset, barrier, barrier.phase, nbytes, origin)

    def _check_tx(self, offset: int, barrier: Mbarrier) -> None:
        if abs(barrier.tx) > MAX_COUNT:
            raise BarrierError(
                f"mbarrier at {offset:#x} of CTA {self._cta}: transaction bytes must stay within "
                f"+-{MAX_COUNT}, got {barrier.tx}; use smaller stages or more barriers"
            )

    def _complete(self, offset: int, barrier: Mbarrier) -> bool:
        if barrier.pending or barrier.tx:
            return False
        barrier.phase += 1
        barrier.pending = barrier.expected
        if self._observer is not None:
            self._report("phase", offset, barrier, barrier.phase - 1, 0, None)
        return True

    def _report(
        self,
        kind: str,
        offset: int,
        barrier: Mbarrier,
        phase: int,
        count: int,
        origin: Origin | None,
        semantics: str = "relaxed",
        scope: str = "cta",
        operation: AsyncOperation | None = None,
    ) -> None:
        assert self._observer is not None
        self._observer.on_barrier(
            BarrierEvent(
                kind, (self._cta, offset), origin, phase, count, barrier.tx, barrier.pending,
                semantics, scope, operation,
            )
        )  # fmt: skip

    def _names(self) -> str:
        return ", ".join(f"{o:#x}" for o in sorted(self._live)) or "none"


def pending_count(state: int) -> int:
    """mbarrier.pending_count: arrivals pending in a state token."""
    return -(state >> 43) & 0xFFFFF

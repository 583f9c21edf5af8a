"""Machine: runs the grid of one launch: clusters, turns of warps, and what is in flight."""

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from math import prod
from time import perf_counter

import numpy as np

from ptxgen.emulator.cta import Cluster, clusters_in_order
from ptxgen.emulator.deadlock import deadlock_report, spinning_report
from ptxgen.emulator.faults import UNFORESEEN, located, unforeseen
from ptxgen.emulator.fragment import Fragment
from ptxgen.emulator.global_memory import GlobalMemory
from ptxgen.emulator.image import Image
from ptxgen.emulator.observer import Observer
from ptxgen.emulator.options import Options
from ptxgen.emulator.pending import GROUP_WAITS, Pending
from ptxgen.emulator.program import Program
from ptxgen.emulator.recurrence import Recurrence
from ptxgen.emulator.stepping import Stepper, Stop
from ptxgen.emulator.values import Context
from ptxgen.emulator.warp import Warp
from ptxgen.errors import DeadlockError, EmulationError, OutOfTimeError
from ptxgen.launch import Launch

TURNS = {"lazy": 64, "eager": 16, "run_to_block": 4096, "random": 32}
"""Versions that a warp may run before the next warp's turn."""
POLLING_TURNS = 64
"""The most where the warp has used up a turn and nothing has changed since."""
PATIENCE = 512
"""Turns after which something in flight completes although warps could go on: they may poll."""
POLLS = 256
"""Turns of polling warps, without anything changing, after which another cluster may start: they
may wait for it, as in stream-K, split-K, look-back scans and grid barriers."""
WATCH = 32
"""Turns, without anything changing, after which polling warps are watched for repeating
themselves."""
COMPLETIONS = (0.2, 0.02)
"""How often something in flight completes after a turn, in the random schedule of even and of odd
seeds: so seldom that kernels which ask ahead find what they asked for still missing."""
MOST_CTAS = 1024
"""CTAs that may be resident because others poll: more than any GPU holds of a kernel like that."""
EARLY = 0.5
"""How often a test_wait returns false at once, in the random schedule."""
SPURIOUS = 0.1
"""How often a try_wait fails for no reason, in the random schedule."""


class Machine:
    """One launch of one kernel."""

    def __init__(
        self,
        image: Image,
        launch: Launch,
        memory: GlobalMemory,
        symbols: dict[str, int],
        param_base: int,
        options: Options,
        observer: Observer | None = None,
    ) -> None:
        self.image = image
        self.launch = launch
        self.memory = memory
        self.symbols = symbols
        """Address of every module variable in global memory."""
        self.param_base = param_base
        self.options = options
        self.observer = observer
        self.tracks = observer is not None
        self.num_sms = 132
        self.eager = options.schedule == "eager"
        self.random = random.Random(options.seed) if options.schedule == "random" else None  # noqa: S311
        self.completions = COMPLETIONS[options.seed % len(COMPLETIONS)]
        self.queue: deque[Warp] = deque()
        self.pending: list[Pending] = []
        self.clusters: list[Cluster] = []
        """Resident clusters."""
        self.epoch = 0
        """Counts everything that could let somebody go on."""
        self.meetings = 0
        """Of these, barriers that hand over no data."""
        self._changes = -1
        self._calm = 0
        """Turns since something else than a meeting happened."""
        self.num_instructions = 0
        """Warp instructions executed."""
        self.printed: list[str] = []
        """What device code printed."""
        self.progress: Callable[[int, int], None] | None = None
        """Told how many clusters of how many are done."""
        self._clusters_done = 0
        self.current: Warp | None = None
        self._time = 0
        self._recurrence = Recurrence()
        self._grid_workspace = 0
        self._next_clusters = clusters_in_order(launch)

    def run(self) -> None:
        """Execute the whole grid.

        Raises: EmulationError and its kinds, PtxError; each names PTX line, CTA and warp.
        """
        observer = self.observer
        grid = self.launch.grid_ctas
        num_ctas = grid[0] * grid[1] * grid[2]
        threads = self.launch.cta_threads
        num_warps = -(-threads[0] * threads[1] * threads[2] // 32)
        if observer is not None:
            observer.on_machine(self)
            observer.on_kernel("start", self.image.entry.name, num_ctas, num_warps)
        with np.errstate(all="ignore"):
            try:
                self._admit(self.options.resident_clusters)
                self._run()
            except EmulationError as error:
                raise located(error, self.current, sys.exc_info()[2]) from error
            except UNFORESEEN as error:
                fault = unforeseen(error)
                raise located(fault, self.current, sys.exc_info()[2]) from error
            finally:
                if self._grid_workspace:
                    self.memory.free(self._grid_workspace)
        if observer is not None:
            observer.on_kernel("end", self.image.entry.name, num_ctas, num_warps)

    # Scheduling

    def wake(self, warp: Warp) -> None:
        """A warp may be able to go on."""
        if not warp.queued:
            warp.queued = True
            self.queue.append(warp)

    def _run(self) -> None:
        turns = TURNS[self.options.schedule]
        patience = idle = 0
        epoch = -1
        while True:
            self._check_time()
            while self.queue:
                self._check_time()
                warp = self._pick()
                warp.queued = False
                self.current = warp
                polls = warp.polled_epoch == self.epoch
                before = self.num_instructions
                turns_left = warp.run(self._turns(min(turns, POLLING_TURNS) if polls else turns))
                runs_on = turns_left <= 0 and bool(warp.fragments)
                if runs_on:
                    self.wake(warp)
                    idle = idle + 1 if self.epoch == epoch else 0
                    warp.polled_epoch = epoch = self.epoch
                repeats = self.num_instructions != before and self._repeats(warp)
                if (repeats or (runs_on and idle > POLLS)) and self._admit_another():
                    idle = 0
                elif repeats or (runs_on and idle > self.options.idle_turns):
                    if not self._release_peeks():
                        raise DeadlockError(spinning_report(self, warp))
                    idle = self._calm = 0
                patience += 1
                if self.pending and (patience > PATIENCE or self._draws_completion()):
                    self._advance()
                    patience = 0
            self.current = None
            patience = 0
            if self.pending:
                self._advance()
            elif self._release_peeks():
                pass
            elif not self.clusters:
                return
            else:
                raise deadlock_report(self)

    def _check_time(self) -> None:
        if self.options.deadline is not None and perf_counter() > self.options.deadline:
            raise OutOfTimeError("the time for this run is over")

    def _repeats(self, warp: Warp) -> bool:
        """Whether nothing is in flight and all warps that run do the same again and again; `warp`
        has just had its turn."""
        changes = self.epoch - self.meetings
        self._calm = self._calm + 1 if changes == self._changes else 0
        self._changes = changes
        if self._calm <= WATCH or self.pending:
            self._recurrence.forget()
            return False
        self._recurrence.note(warp)
        leap = self._recurrence.leap() if self._recurrence.holds(self.queue) else -1
        self._time += max(leap, 0)
        return not leap

    def _draws_completion(self) -> bool:
        return self.random is not None and self.random.random() < self.completions

    def _turns(self, turns: int) -> int:
        return turns if self.random is None else self.random.randint(1, turns)

    def _pick(self) -> Warp:
        queue = self.queue
        if self.options.schedule == "run_to_block":
            epoch = self.epoch
            eager = [w for w in queue if w.polled_epoch != epoch]
            if eager:
                warp = min(eager, key=lambda w: (w.cta.index, w.index))
                queue.remove(warp)
                return warp
        if self.random is not None and len(queue) > 1:
            queue.rotate(-self.random.randrange(len(queue)))
        return queue.popleft()

    def spurious_failure(self) -> bool:
        """Whether a try_wait fails for no reason now."""
        return self.random is not None and self.random.random() < SPURIOUS

    def returns_early(self) -> bool:
        """Whether a test_wait that finds its phase incomplete says so now; it may also be late."""
        return self.random is not None and self.random.random() < EARLY

    def _release_peeks(self) -> bool:
        """Let try_waits return false that have not done so since something last changed."""
        found = False
        for fragment in list(self.fragments()):
            wait = fragment.wait
            if wait is not None and wait.peek and fragment.peek_epoch != self.epoch:
                fragment.peek_epoch = self.epoch
                found = True
                waiting = fragment.cta.mbarrier_waiters.get(wait.subject[0], [])
                waiting.remove(fragment)
                if not waiting:
                    del fragment.cta.mbarrier_waiters[wait.subject[0]]
                fragment.release(False)
        return found

    def fragments(self) -> Iterator[Fragment]:
        """All fragments of all resident warps."""
        for cluster in self.clusters:
            for cta in cluster.ctas:
                for warp in cta.warps:
                    yield from warp.fragments

    # Asynchronous work

    def issue(self, operation: Pending) -> None:
        """Take an asynchronous operation."""
        self.epoch += 1
        if operation.operation is not None and self.observer is not None:
            self.observer.on_issue(operation.operation)
        if self.eager:
            while not operation.done:
                operation.perform(self)
            self._check_waits(operation)
        else:
            self.pending.append(operation)

    def _advance(self) -> None:
        """Perform one stage of one operation in flight."""
        pending = self.pending
        if self.random is not None:
            chosen = pending[self.random.randrange(len(pending))]
        else:
            chosen = next((p for p in pending if p.wanted()), pending[0])
        while chosen.after is not None and not chosen.after.done:
            chosen = chosen.after
        self.perform(chosen)

    def perform(self, operation: Pending) -> None:
        """Perform the next stage of an operation in flight."""
        self.current = operation.warp
        try:
            operation.perform(self)
        except EmulationError as error:
            if error.line is None:
                error.line = operation.origin.line
            raise
        except UNFORESEEN as error:
            raise unforeseen(error, operation.origin.line) from error
        if operation.done:
            self.pending.remove(operation)
        self._check_waits(operation)

    def complete(self, operations: list[Pending]) -> None:
        """Perform all of some operations."""
        for operation in operations:
            while not operation.done:
                self.perform(operation)

    def _check_waits(self, operation: Pending) -> None:
        """End group waits that an operation has satisfied."""
        for warp in operation.waiters:
            for fragment in tuple(warp.fragments):
                wait = fragment.wait
                if wait is not None and wait.kind in GROUP_WAITS and wait.subject():
                    fragment.release()

    # Grid

    def _admit_another(self) -> bool:
        """Start a cluster beyond resident_clusters, as many as a GPU runs at once; whether one was
        left."""
        residents = sum(len(c.ctas) for c in self.clusters)
        if not self.options.resident_clusters or residents >= MOST_CTAS:
            return False
        before = len(self.clusters)
        self._admit(before + 1)
        admitted = len(self.clusters) > before
        self.epoch += admitted
        return admitted

    def _admit(self, limit: int) -> None:
        while not limit or len(self.clusters) < limit:
            ctas = next(self._next_clusters, None)
            if ctas is None:
                return
            cluster = Cluster(self, len(self.clusters), ctas)
            self.clusters.append(cluster)
            program = self.image.program
            for cta in cluster.ctas:
                for warp in cta.warps:
                    mode = "full" if warp.alive == 0xFFFFFFFF else (
                        "part" if warp.alive & (warp.alive - 1) else "one"
                    )  # fmt: skip
                    warp.start(program.entry(mode), program.num_slots)
                    if self.observer is not None:
                        self.observer.on_warp("start", warp.fragments[0].origin(0))
                    self.wake(warp)

    def take_cluster(self) -> tuple[int, int, int] | None:
        """%ctaid of the first CTA of the next cluster, which then never starts; None at the end."""
        ctas = next(self._next_clusters, None)
        if ctas is None:
            return None
        gx, gy, _ = self.launch.grid_ctas
        return ctas[0] % gx, ctas[0] // gx % gy, ctas[0] // (gx * gy)

    def cluster_exited(self, cluster: Cluster) -> None:
        """A cluster is done: finish what it left in flight, and let the next one in."""
        ctas = set(cluster.ctas)
        self.complete([p for p in self.pending if p.warp.cta in ctas])
        self.clusters.remove(cluster)
        self._clusters_done += 1
        if self.progress is not None:
            total = prod(self.launch.grid_ctas) // prod(self.launch.cluster_ctas)
            self.progress(self._clusters_done, total)
        self._admit(self.options.resident_clusters)

    # Called by generated code

    def grid_workspace(self) -> int:
        """Address of the words through which cooperative groups synchronise a grid."""
        if not self._grid_workspace:
            self._grid_workspace = self.memory.allocate(256, "grid workspace")
            self.memory.write(self._grid_workspace, bytes(256))
        return self._grid_workspace

    def clock(self, decides: bool = True) -> int:
        """A time that grows: instructions executed so far, and leaps where only time can help.
        `decides`: whether something may depend on it."""
        if decides:
            self._recurrence.timed = True
        self._time += 1
        return self.num_instructions + self._time

    def undefined_register(self, fragment: Fragment, register: str, line: int) -> None:
        """A register is read that was never written."""
        if self.observer is not None:
            self.observer.on_undefined_register(fragment.origin(line), register)

    def before_instruction(
        self, fragment: Fragment, program: Program, index: int, context: Context
    ) -> None:
        """An instruction is about to execute."""
        observer = self.observer
        if observer is None:
            return
        instruction = program.flow.body[index]
        origin = fragment.origin(instruction.line)
        observer.on_instruction(origin, index)
        if isinstance(observer, Stepper):
            name = program.function.name
            observer.on_stop(Stop(origin, instruction, index, name, fragment, context))

    def over_budget(self, fragment: Fragment) -> None:
        """Stop a run that takes too long.

        Raises: EmulationError.
        """
        target = fragment.next
        body = () if target is None else target.program.flow.body
        line = None
        if target is not None and target.position < len(body):
            line = body[target.position].line
        raise EmulationError(
            f"{self.num_instructions} warp instructions were executed, more than max_instructions="
            f"{self.options.max_instructions}: an endless loop, or raise the limit",
            line,
        )

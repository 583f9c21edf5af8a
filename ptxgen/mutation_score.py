"""The mutation score: how many mutants of a kernel the checker notices."""

import base64
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any

from ptxgen.emulator import Options, run
from ptxgen.emulator.checking import check
from ptxgen.emulator.findings import CODES
from ptxgen.emulator.image import parse_cached
from ptxgen.emulator.observer import (
    AsyncOperation,
    BarrierEvent,
    BarrierKey,
    Observer,
    Origin,
)
from ptxgen.errors import EmulationError, HazardError, OutOfTimeError
from ptxgen.launch import Launch
from ptxgen.mutation import Mutant, mutants
from ptxgen.mutation_rules import Facts, paths_of, rule_of

SEEDS = (0, 1)
TURNS = (("lazy", 0), ("run_to_block", 0), ("eager", 0), *(("random", seed) for seed in SEEDS))
"""Schedules and seeds in the order in which they are tried; the first finding ends it."""
MIN_SCORE = 0.98
"""Share of the mutants that are not equivalent which must be caught."""
PATIENCE = 20
"""Times the instructions of the unchanged kernel that a mutant may execute."""
CAUGHT, EQUIVALENT, SURVIVED = "caught", "equivalent", "survived"
WRONG_RESULT = "WRONG-RESULT"


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    outcome: str
    """caught, equivalent or survived."""
    by: str
    """Code of the finding, WRONG-RESULT, name of the rule, or why it may have survived."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "line": self.mutant.line, "operator": self.mutant.operator,
            "instruction": self.mutant.instruction, "by": self.by,
        }  # fmt: skip


@dataclass
class Score:
    """All verdicts."""

    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0

    def of(self, outcome: str) -> list[Verdict]:
        """The verdicts with some outcome, by line."""
        found = [v for v in self.verdicts if v.outcome == outcome]
        return sorted(found, key=lambda v: (v.mutant.line, v.mutant.operator))

    @property
    def value(self) -> float:
        """Caught, of those that are not equivalent; 1 if there are none."""
        live = len(self.verdicts) - len(self.of(EQUIVALENT))
        return len(self.of(CAUGHT)) / live if live else 1.0

    @property
    def ok(self) -> bool:
        """Whether enough were caught."""
        return self.value >= MIN_SCORE


Progress = Callable[[Verdict, int, int], None]
"""Called with each verdict, how many there are so far, and how many there will be."""


@dataclass(frozen=True)
class Scenario:
    """One launch of the text, with its input. Several of them execute all of it."""

    launch: Launch
    data: Mapping[str, bytes]


@dataclass(frozen=True)
class _Baseline:
    """What the unchanged text does in one scenario."""

    job: dict[str, Any]
    """Launch, input, and digests of the outputs, as plain JSON data."""
    lines: frozenset[int]
    """PTX lines that are executed."""
    facts: Facts
    unexecuted: frozenset[int]
    """The other lines."""


def score(
    text: str,
    scenarios: Sequence[Scenario],
    executor: Executor,
    *,
    strict: bool = True,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Score:
    """Mutate a kernel and check every mutant, on an executor.

    A mutant is tried in the scenarios that execute its line. seconds: a budget, in which the
    unchanged kernel runs, too; mutants not judged within it survive.

    Raises: HazardError if the kernel itself is not clean, PtxError.
    """
    began = time.perf_counter()
    deadline = None if seconds is None else began + seconds
    entry = scenarios[0].launch.entry
    paths = paths_of(parse_cached(text).entry(entry))
    everything = mutants(text, entry)
    found = Score()
    try:
        baselines = [_baseline(text, scenario, strict, deadline) for scenario in scenarios]
    except OutOfTimeError:
        by = f"the unchanged kernel alone takes longer than {seconds} s"
        found.verdicts = [Verdict(mutant, SURVIVED, by) for mutant in everything]
        found.seconds = time.perf_counter() - began
        return found
    facts = Facts(
        frozenset().union(*(b.facts.tensor_waits for b in baselines)),
        frozenset.intersection(
            *(frozenset(b.facts.own_arrivals) | b.unexecuted for b in baselines)
        ),
    )

    def add(mutant: Mutant, by: str, otherwise: str) -> None:
        outcome = CAUGHT
        if not by:
            by = rule_of(paths, mutant, facts)
            outcome, by = (EQUIVALENT, by) if by else (SURVIVED, otherwise)
        found.verdicts.append(Verdict(mutant, outcome, by))
        if progress is not None:
            progress(found.verdicts[-1], len(found.verdicts), len(everything))

    jobs: dict[Future[str], Mutant] = {}
    for mutant in everything:
        jobs_of = [b.job for b in baselines if mutant.line in b.lines]
        if jobs_of:
            job = {"text": mutant.apply(text), "strict": strict, "scenarios": jobs_of}
            jobs[executor.submit(judge, job)] = mutant
        else:
            add(mutant, "", "its line is never executed")
    for future in _as_completed(jobs, deadline):
        add(jobs.pop(future), future.result(), "unnoticed")
    for future, mutant in jobs.items():
        future.cancel()
        add(mutant, "", f"not judged within {seconds} s")
    found.seconds = time.perf_counter() - began
    return found


def judge(job: dict[str, Any]) -> str:
    """Check one mutant. `job`: text, strict and scenarios (launch, data, digests,
    max_instructions), as JSON data.

    Returns: the code by which it was noticed, or "".
    """
    for scenario in job["scenarios"]:
        launch = Launch.from_json(scenario["launch"])
        data = {k: base64.b64decode(v) for k, v in scenario["data"].items()}
        for schedule, seed in TURNS:
            try:
                report = check(
                    job["text"], launch, data, strict=job["strict"], on_race="raise",
                    schedules=(schedule,), seeds=(seed,),
                    max_instructions=scenario["max_instructions"],
                )  # fmt: skip
            except HazardError as error:
                return _code_of(error)
            except EmulationError as error:
                return type(error).__name__
            if report.findings:
                return report.findings[0].code
            if _digests(report.outputs) != scenario["digests"]:
                return WRONG_RESULT
    return ""


def _code_of(error: HazardError) -> str:
    """The code that heads the message, behind where it was found."""
    codes = re.findall(r"(?:^|: )([A-Z]+(?:-[A-Z]+)*): ", str(error))
    return next((c for c in codes if c in CODES), type(error).__name__)


def _baseline(text: str, scenario: Scenario, strict: bool, deadline: float | None) -> _Baseline:
    """Raises: HazardError, OutOfTimeError."""
    left = None if deadline is None else deadline - time.perf_counter()
    schedules = tuple(dict.fromkeys(schedule for schedule, _ in TURNS))
    report = check(
        text, scenario.launch, scenario.data, strict=strict, schedules=schedules, seeds=SEEDS,
        max_seconds=left,
    )  # fmt: skip
    if deadline is not None and time.perf_counter() > deadline:
        raise OutOfTimeError("the time for the unchanged kernel is over")
    if report.findings or not report.identical:
        raise HazardError(f"the kernel must be clean before it is mutated, it has: {report}")
    coverage = Coverage()
    for schedule, seed in TURNS:
        options = Options(schedule, seed, deadline=deadline)
        run(text, scenario.launch, dict(scenario.data), options, coverage)
    most = max(r.num_instructions for r in report.runs)
    job = {
        "launch": scenario.launch.to_json(), "digests": _digests(report.outputs),
        "max_instructions": PATIENCE * most,
        "data": {k: base64.b64encode(v).decode() for k, v in scenario.data.items()},
    }  # fmt: skip
    every = range(1, text.count("\n") + 2)
    return _Baseline(
        job, frozenset(coverage.lines), coverage.facts(), frozenset(every) - coverage.lines
    )


def _digests(outputs: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(raw).hexdigest() for name, raw in outputs.items()}


def _as_completed(
    jobs: Mapping["Future[str]", Mutant], deadline: float | None
) -> Iterator["Future[str]"]:
    waiting = set(jobs)
    while waiting:
        left = None if deadline is None else deadline - time.perf_counter()
        if left is not None and left <= 0:
            return
        done, waiting = wait(waiting, timeout=left, return_when=FIRST_COMPLETED)
        yield from done


Thread = tuple[int, int, int]
"""CTA, warp, mask of lanes."""


class Coverage(Observer):
    """Collects the PTX lines that are executed, and who arrives and waits where."""

    wants_instructions = True

    def __init__(self) -> None:
        self.lines: set[int] = set()
        self._tensor_warps: set[tuple[int, int]] = set()
        self._arrivals: set[tuple[BarrierKey, int, Thread | None]] = set()
        self._waits: set[tuple[BarrierKey, int, Thread]] = set()

    def facts(self) -> Facts:
        """What the rules of equivalence ask for."""
        guilty = {
            barrier
            for barrier, _, who in self._arrivals
            if who is None or who[:2] in self._tensor_warps
        }
        waiters: dict[BarrierKey, set[Thread]] = {}
        for barrier, _, who in self._waits:
            waiters.setdefault(barrier, set()).add(who)
        shared = {
            line
            for barrier, line, arriver in self._arrivals
            if arriver is not None and waiters.get(barrier, set()) != {arriver}
        }
        return Facts(
            frozenset(line for barrier, line, _ in self._waits if barrier in guilty),
            frozenset(line for _, line, _ in self._arrivals) - shared,
        )

    def on_instruction(self, origin: Origin, index: int) -> None:
        """A line is executed."""
        self.lines.add(origin.line)

    def on_issue(self, operation: AsyncOperation) -> None:
        """A warp has tcgen05 work."""
        if operation.kind.startswith("tcgen05"):
            self._tensor_warps.add((operation.origin.cta, operation.origin.warp))

    def on_barrier(self, event: BarrierEvent) -> None:
        """Who arrives (None: a commit), and who waits where."""
        origin = event.origin
        who = None if origin is None else (origin.cta, origin.warp, origin.lanes)
        if event.kind in ("arrive", "arrive_drop"):
            self._arrivals.add((event.barrier, 0 if origin is None else origin.line, who))
        elif event.kind in ("wait", "wait_failed") and origin is not None and who is not None:
            self._waits.add((event.barrier, origin.line, who))

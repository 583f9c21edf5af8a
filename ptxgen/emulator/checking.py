"""check: run a kernel under several schedules and report every hazard found.

Option names follow Pallas' GPU interpret mode: detect_races, on_race, uninitialized_memory,
out_of_bounds_reads.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.buffers import check_sizes, initial_bytes
from ptxgen.emulator.checker import Checker
from ptxgen.emulator.checker_faults import report_fault
from ptxgen.emulator.checker_report import Reporter
from ptxgen.emulator.device import EmulatorDevice
from ptxgen.emulator.findings import CODES, SEVERITIES, Finding
from ptxgen.emulator.image import parse_cached
from ptxgen.emulator.lenient_memory import LenientMemory
from ptxgen.emulator.options import SCHEDULES, Options
from ptxgen.errors import (
    ArgumentError,
    ConfigError,
    EmulationError,
    HazardError,
    LaunchError,
    OutOfTimeError,
    not_one_of,
)
from ptxgen.launch import Launch
from ptxgen.ptx.forms import check_forms

DEFAULT_SEEDS = (0, 1)
"""Seeds of the random schedule."""

Data = Mapping[str, "bytes | NDArray[Any]"]


@dataclass(frozen=True)
class ScheduleRun:
    """One run under one schedule."""

    schedule: str
    seed: int
    seconds: float
    num_instructions: int
    """Warp instructions executed."""
    error: str = ""
    """What stopped it; empty if it came to its end."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each output; empty if it did not."""
    printed: str = ""
    """What device code printed."""


@dataclass(frozen=True)
class Report:
    """What checking found."""

    findings: tuple[Finding, ...]
    """Errors first, then by line."""
    runs: tuple[ScheduleRun, ...]
    identical: bool
    """All runs that came to their end left the same bytes, and at least one did."""
    seconds: float
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of the outputs after the first run that came to its end."""
    skipped: tuple[str, ...] = ()
    """Schedules that max_seconds left no time for."""

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(f.severity == "error" for f in self.findings)

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the findings, each once."""
        return tuple(dict.fromkeys(f.code for f in self.findings))

    def __str__(self) -> str:
        names = ", ".join(f"{r.schedule}:{r.seed}" for r in self.runs)
        head = (
            f"{len(self.findings)} finding(s) in {len(self.runs)} run(s) ({names}), "
            f"results {'identical' if self.identical else 'differ or missing'}"
        )
        return "\n".join([head, *map(str, self.findings)])


def check(
    ptx: str,
    launch: Launch | Sequence[Launch],
    buffers: Data | None = None,
    *,
    strict: bool = False,
    schedules: Sequence[str] = SCHEDULES,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    exact: bool = False,
    detect_races: bool = True,
    on_race: str = "report",
    uninitialized_memory: str = "nan",
    out_of_bounds_reads: str = "raise",
    outputs: Sequence[str] | None = None,
    max_seconds: float | None = None,
    resident_clusters: int = 1,
    max_instructions: int = Options.max_instructions,
    progress: Callable[[str, float, int], None] | None = None,
) -> Report:
    """Run `launch` of `ptx` under every schedule and compare the results.

    launch: several launches run in stream order on the same buffers. buffers: contents by buffer
    name; others start as their `init` says. strict: our own rules, where a published sample may
    break them. schedules: of SCHEDULES; random runs once per seed. detect_races: False leaves
    only what stops a run and what differs between runs. on_race: raise stops at the first error.
    uninitialized_memory: nan (poison, and reads of it are reported) or zero (neither).
    out_of_bounds_reads: raise, or uninitialized (global reads outside of buffers give poison).
    outputs: buffers to compare, None = all whose role is not in. max_seconds: where it is over,
    the run at hand stops and no further one begins. resident_clusters,
    max_instructions: as in Options. progress: told which run is at hand, how many runs and parts of
    runs are done, and how many there will be.

    Raises: ArgumentError, LaunchError, PtxError; HazardError if on_race is raise.
    """
    began = time.perf_counter()
    launches = (launch,) if isinstance(launch, Launch) else tuple(launch)
    _check_arguments(schedules, on_race, uninitialized_memory, out_of_bounds_reads)
    plan = _Plan(
        ptx, launches, buffers or {}, strict, exact, detect_races, on_race,
        uninitialized_memory == "nan", out_of_bounds_reads == "raise", resident_clusters,
        max_instructions,
        None if max_seconds is None else began + max_seconds,
    )  # fmt: skip
    names = outputs if outputs is not None else plan.outputs()
    runs: list[ScheduleRun] = []
    skipped: list[str] = []
    found: dict[tuple[Any, ...], Finding] = {}
    contents: list[dict[str, bytes]] = []
    for finding in _forms(ptx, strict):
        found[finding.key] = finding
    ways = [(s, n) for s in schedules for n in (seeds if s == "random" else (0,))]
    for number, (schedule, seed) in enumerate(ways):
        if runs and plan.deadline is not None and time.perf_counter() > plan.deadline:
            skipped.append(f"{schedule}:{seed}")
            continue
        tell = None
        if progress is not None:
            label = f"{schedule} seed {seed}" if schedule == "random" else schedule
            tell = _teller(progress, label, number, len(ways), len(launches))
        run, findings, result = plan.run(schedule, seed, names, tell)
        runs.append(run)
        for finding in findings:
            found.setdefault(finding.key, finding)
        if not run.error:
            contents.append(result)
            if len(contents) > 1 and result != contents[0]:
                finding = _differs(plan.strict, contents[0], result, runs, run)
                found.setdefault(finding.key, finding)
                contents.pop()
    identical = bool(contents) and len({tuple(r.digests.items()) for r in runs if r.digests}) == 1
    ordered = sorted(found.values(), key=lambda f: (SEVERITIES.index(f.severity), f.line or 0))
    return Report(
        tuple(ordered), tuple(runs), identical, time.perf_counter() - began,
        contents[0] if contents else {}, tuple(skipped),
    )  # fmt: skip


@dataclass(frozen=True)
class _Plan:
    """Everything that the runs of one check share."""

    ptx: str
    launches: tuple[Launch, ...]
    data: Data
    strict: bool
    exact: bool
    detect_races: bool
    on_race: str
    poison: bool
    bounds: bool
    resident_clusters: int
    max_instructions: int
    deadline: float | None

    def outputs(self) -> tuple[str, ...]:
        """Buffers that some launch may write."""
        found = dict.fromkeys(b.name for n in self.launches for b in n.buffers if b.role != "in")
        return tuple(found)

    def run(
        self, schedule: str, seed: int, outputs: Sequence[str],
        tell: Callable[[int, int, int], None] | None = None,
    ) -> tuple[ScheduleRun, list[Finding], dict[str, bytes]]:  # fmt: skip
        """One run: what it was, what was found, and the outputs if it came to its end.

        tell: takes the number of a launch, and how many of its clusters of how many are done.
        """
        began = time.perf_counter()
        checker: Checker | None = None
        reporter = Reporter(self.strict, self.on_race)
        if self.detect_races:
            checker = Checker(
                strict=self.strict, on_race=self.on_race, uninitialised=self.poison,
                zeros=not self.poison,
            )  # fmt: skip
            reporter = checker.reporter
            written = set(self.outputs())
            known = {b.name for n in self.launches for b in n.buffers}
            checker.memories.read_only = known - written
        options = Options(
            schedule, seed, self.exact, self.resident_clusters, self.max_instructions,
            deadline=self.deadline,
        )  # fmt: skip
        device = EmulatorDevice(options, checker)
        if not self.bounds:
            device.memory = LenientMemory(track=checker is not None, on_miss=checker)
        addresses = self._fill(device)
        error = ""
        result: dict[str, bytes] = {}
        try:
            for number, launch in enumerate(self.launches):
                if tell is not None:
                    tell(number, 0, 1)
                    device.progress = partial(tell, number)
                device.launch(launch, self.ptx, {b.name: addresses[b.name] for b in launch.buffers})
                if checker is not None:
                    _report_flags(checker, device, launch, addresses)
            sizes = {b.name: b.nbytes for n in self.launches for b in n.buffers}
            result = {name: device.read(addresses[name], sizes[name]) for name in outputs}
        except HazardError:
            raise
        except OutOfTimeError as over:
            error = str(over)
        except EmulationError as fault:
            error = str(fault)
            report_fault(reporter, fault)
            if self.on_race == "raise":
                raise
        findings = list(reporter.found.values())
        for finding in findings:
            finding.schedule, finding.seed = schedule, seed
        digests = {n: hashlib.sha256(raw).hexdigest() for n, raw in result.items()}
        return (
            ScheduleRun(
                schedule, seed, time.perf_counter() - began, device.num_instructions, error,
                digests, device.printed,
            ),
            findings, result,
        )  # fmt: skip

    def _fill(self, device: EmulatorDevice) -> dict[str, int]:
        """Allocate and fill every buffer."""
        addresses: dict[str, int] = {}
        known = {b.name for n in self.launches for b in n.buffers}
        unknown = sorted(set(self.data) - known)
        if unknown:
            raise LaunchError(not_one_of("each name of buffers", unknown[0], sorted(known)))
        check_sizes(b for n in self.launches for b in n.buffers)
        for launch in self.launches:
            for buffer in launch.buffers:
                if buffer.name in addresses:
                    continue
                given = self.data.get(buffer.name)
                if given is None:
                    raw = initial_bytes(buffer)
                elif isinstance(given, bytes):
                    raw = given
                else:
                    raw = np.ascontiguousarray(given).tobytes()
                if len(raw) > buffer.nbytes:
                    raise LaunchError(
                        f"buffer {buffer.name!r} has {buffer.nbytes} B, but {len(raw)} B were "
                        "given; try as many"
                    )
                addresses[buffer.name] = device.alloc(buffer.nbytes)
                if raw:
                    device.write(addresses[buffer.name], raw)
        return addresses


def _report_flags(
    checker: Checker, device: EmulatorDevice, launch: Launch, addresses: Mapping[str, int]
) -> None:
    """Report words of workspaces that were waited for and are not zero, as the next launch takes
    them to be."""
    for buffer in launch.workspaces:
        start = addresses[buffer.name]
        for address, access in checker.flags.read.items():
            if not start <= address < start + buffer.nbytes:
                continue
            if not any(device.read(address, access.size)):
                continue
            line = access.origin.line
            if checker.reporter.repeats("FLAG-LEFT-SET", line):
                continue
            checker.reporter.add(
                "FLAG-LEFT-SET",
                f"byte {address - start} of buffer {buffer.name!r}, which "
                f"`{checker.reporter.brief(line)}` reads, is not zero after the launch",
                access.origin, access=access, addresses=(address, access.size),
            )  # fmt: skip


def _teller(
    progress: Callable[[str, float, int], None], label: str, run: int, runs: int, launches: int
) -> Callable[[int, int, int], None]:
    """What tells of one run of several, from the clusters of its launches."""

    def tell(launch: int, done: int, total: int) -> None:
        progress(label, run + (launch + done / total) / launches, runs)

    return tell


def _forms(ptx: str, strict: bool) -> Iterator[Finding]:
    """What ptxas would reject of a text that the emulator runs."""
    info = CODES["FORM"]
    severity = info.strict if strict else info.tolerant
    module = parse_cached(ptx)
    try:
        forms = check_forms(module)
    except ConfigError as error:
        yield Finding("FORM", severity, str(error).splitlines()[0], 1, fix=info.fix)
        return
    for form in forms:
        yield Finding(
            "FORM", severity, form.message, form.line, fix=info.fix, instruction=form.what
        )


def _differs(
    strict: bool, first: Mapping[str, bytes], other: Mapping[str, bytes],
    runs: Sequence[ScheduleRun], run: ScheduleRun,
) -> Finding:  # fmt: skip
    """Two runs left different bytes."""
    name = next(n for n in first if first[n] != other[n])
    a, b = (np.frombuffer(x[name], np.uint8) for x in (first, other))
    places = np.flatnonzero(a != b)
    start = next(r for r in runs if not r.error)
    info = CODES["NONDETERMINISTIC"]
    return Finding(
        "NONDETERMINISTIC", info.strict if strict else info.tolerant,
        f"buffer {name!r} differs in {len(places)} byte(s), the first at {int(places[0])}, between "
        f"schedule {start.schedule}:{start.seed} and {run.schedule}:{run.seed}",
        space="global", addresses=(int(places[0]), len(places)), fix=info.fix,
        schedule=run.schedule, seed=run.seed,
    )  # fmt: skip


def _check_arguments(
    schedules: Sequence[str], on_race: str, uninitialized_memory: str, out_of_bounds_reads: str
) -> None:
    for schedule in schedules:
        if schedule not in SCHEDULES:
            raise ArgumentError(not_one_of("each of schedules", schedule, SCHEDULES))
    for name, value, legal in (
        ("on_race", on_race, ("report", "raise")),
        ("uninitialized_memory", uninitialized_memory, ("nan", "zero")),
        ("out_of_bounds_reads", out_of_bounds_reads, ("raise", "uninitialized")),
    ):
        if value not in legal:
            raise ArgumentError(not_one_of(name, value, legal))

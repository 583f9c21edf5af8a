"""grouped_suite: measure grouped problems on one GPU beside their peers and a read stream."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from ptxgen.benchmark import grouped_peers
from ptxgen.benchmark.ceilings import StreamReader, image_of, measure_ceilings
from ptxgen.benchmark.check import Check
from ptxgen.benchmark.conversion import PeerTable
from ptxgen.benchmark.deepgemm import Cubins, grouped_contender
from ptxgen.benchmark.gpu_state import StateSampler
from ptxgen.benchmark.grouped_check import CHECKED_GROUPS, check
from ptxgen.benchmark.grouped_conversion import OURS, Converter
from ptxgen.benchmark.grouped_sets import GroupedCase, grouped_set
from ptxgen.benchmark.grouped_workload import GroupedWorkload
from ptxgen.benchmark.method import Contender, Method, Samples, compare, paired_ratio
from ptxgen.benchmark.peers import PeerError
from ptxgen.benchmark.replay import Stopwatch, launch_contender, stopwatch
from ptxgen.benchmark.report import SCHEMA, PeerResult, summary_of
from ptxgen.benchmark.suite import provenance
from ptxgen.errors import ConfigError, WrongResultError
from ptxgen.kernels import grouped_sm90
from ptxgen.launcher.device import GpuDevice
from ptxgen.plans import Plan
from ptxgen.swap_selection import SwapChoice, choose_swap

OTHER = "ptxgen, the other way"
"""Ours with the operands swapped where the choice was not to, and straight where it was."""
LEVEL = "kernel"
"""What is timed: kernels in a replayed CUDA graph, nothing around them."""
QUICK = Method(slot_s=0.005, settle_s=0.02, min_rounds=5, max_rounds=5)
"""For the many points of a curve."""
STREAM = Method(slot_s=0.01, settle_s=0.02, min_rounds=5, max_rounds=5)
"""For the read stream of one problem's bytes, which no clock holds back."""
METHOD = (
    "Operands from a pool of quantised normal numbers, in so many copies that the others exceed "
    "twice the L2; rows of some groups of each result compared bit for bit with the exact "
    "tensor-core model on the timed buffers; calls captured into a CUDA graph over all copies; "
    "paired rounds timed by events, whose order is reversed each round; the time is the median of "
    "the rounds, a ratio the median over rounds of peer / ours. The read stream reads as many "
    "bytes as the problem must move, results included. Programmatic dependent launch off."
)


@dataclass(frozen=True)
class GroupedResult:
    """One problem: ours and the peers."""

    case: GroupedCase
    choice: SwapChoice
    samples: dict[str, Samples]
    checks: dict[str, Check]
    converted: tuple[PeerResult, ...]
    """Peers that did not run here."""
    refusals: dict[str, str]
    stream_s: float
    """What the read stream takes for all compulsory bytes; for a point of a curve, at the rate of a
    long one."""
    sizes: Any
    state: dict[str, Any]

    def as_data(self) -> dict[str, Any]:
        """For the report; times in microseconds."""
        problem, ours = self.case.problem, self.samples[OURS]
        flop, nbytes = problem.flop(self.sizes), problem.compulsory_bytes(self.sizes)
        return {
            "set": self.case.set_name,
            "kind": self.case.kind,
            "case": self.case.label,
            "mode": problem.mode,
            "groups": problem.groups,
            "rows": list(self.case.rows),
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "problem": asdict(problem),
            "swap_ab": self.choice.config.swap_ab,
            "config": asdict(self.choice.config),
            "config_name": str(self.choice.config),
            "config_source": self.choice.why,
            "correct": self.checks[OURS].ok,
            "check": asdict(self.checks[OURS]),
            "us": ours.median * 1e6,
            "spread": ours.spread,
            "samples_us": [round(v * 1e6, 4) for v in ours.values],
            "tflops": flop / ours.median / 1e12,
            "gbytes_per_s": nbytes / ours.median / 1e9,
            "read_stream_us": self.stream_s * 1e6,
            "percent_of_read_stream": 100 * self.stream_s / ours.median,
            "peers": [
                {
                    "peer": name,
                    "us": samples.median * 1e6,
                    "ratio": paired_ratio(samples, ours),
                    "spread": samples.spread,
                    "samples_us": [round(v * 1e6, 4) for v in samples.values],
                    "converted": None,
                    "check": asdict(self.checks[name]) if name in self.checks else None,
                }
                for name, samples in self.samples.items()
                if name != OURS
            ]
            + [
                {"peer": x.name, "us": x.seconds * 1e6, "ratio": x.ratio, "converted": x.converted}
                for x in self.converted
            ],
            "not_measured": self.refusals,
            "level": LEVEL,
            "gpu_state": self.state,
        }


def run(
    cases: Sequence[GroupedCase],
    device: GpuDevice,
    executor: Executor,
    *,
    peers: bool = True,
    both_ways: bool = False,
    method: Method | None = None,
    time_budget_s: float = float("inf"),
    table: PeerTable | None = None,
    cubins: Cubins | None = None,
    measured_by: str = "",
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure all cases and return the report, schema ptxgen.bench/1.

    peers: DeepGEMM and torch, too, where they are installed; a peer that is not is converted from
    `table` if it has the problem. cubins: what DeepGEMM is measured by instead. both_ways: the best
    config of the other kind too, swapped or straight, for all sets; else for those that ask for it.

    Raises: ConfigError if no config serves a problem; DriverError, AssemblyError.
    """
    method = method or Method()
    began = time.monotonic()
    sampler = StateSampler(device)
    where = provenance(device, sampler)
    results: list[GroupedResult] = []
    skipped: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    note(f"{device.name}: {len(cases)} problems; assembling")
    queue = [_prepare(case, device, both_ways) for case in by_problem(cases)]
    plans = {way.plan.launch.entry: way.plan for prepared in queue for way in prepared.ways}
    # All are assembled before anything is measured: a busy host holds launches back.
    images = dict(zip(plans, executor.map(image_of, plans.values()), strict=True))
    with stopwatch(device) as watch, ExitStack() as stack:
        reader = StreamReader(watch)
        stack.callback(reader.close)
        dtypes = tuple(sorted({case.problem.a for case in cases}))
        ceilings = measure_ceilings(watch, reader, dtypes, method, executor, note)
        copy_bytes_per_s = reader.copy_bytes_per_s()
        converter = Converter(watch, method, table, copy_bytes_per_s)
        bench = _Bench(
            watch, reader, sampler, method, images, peers, converter, cubins,
            ceilings.read_bytes_per_s.median,
        )  # fmt: skip
        stack.callback(bench.close)
        for index, prepared in enumerate(queue):
            case = prepared.case
            label = f"{case.set_name}/{case.kind} {case.label}"
            left = began + time_budget_s - time.monotonic()
            if left <= 0:
                skipped.append({"case": label, "reason": f"no time left of {time_budget_s:.0f} s"})
                continue
            try:
                result = bench.measure(prepared, left / (len(queue) - index))
            except WrongResultError as error:
                failed.append({"case": label, "reason": str(error)})
                note(f"{label}: WRONG: {error}")
                continue
            results.append(result)
            note(f"{label}: {_line(result)}")
    places = {case: place for place, case in enumerate(cases)}
    results.sort(key=lambda result: places[result.case])
    return {
        "schema": SCHEMA,
        **where,
        "measured_by": measured_by,
        "level": LEVEL,
        "seconds": time.monotonic() - began,
        "method": {**asdict(method), "text": METHOD},
        "ceilings": {**ceilings.as_data(), "copy_gbytes_per_s": copy_bytes_per_s / 1e9},
        "peers": grouped_peers.WHAT | _by_cubins(cubins),
        "results": [result.as_data() for result in results],
        "summary": summarise(results),
        "skipped": skipped,
        "failed": failed,
    }


def by_problem(cases: Sequence[GroupedCase]) -> list[GroupedCase]:
    """The cases in an order in which those that share operands follow each other."""
    first: dict[Any, int] = {}
    for case in cases:
        first.setdefault(case.problem, len(first))
    return sorted(cases, key=lambda case: first[case.problem])


@dataclass(frozen=True)
class _Way:
    """One config of ours for a case."""

    name: str
    choice: SwapChoice
    plan: Plan


@dataclass(frozen=True)
class _Prepared:
    """A case, and the ways in which ours computes it."""

    case: GroupedCase
    ways: tuple[_Way, ...]
    refusals: dict[str, str]


def _prepare(case: GroupedCase, device: GpuDevice, both_ways: bool) -> _Prepared:
    """Choose configs for a case.

    Raises: ConfigError if no config serves the problem.
    """
    expected = -(-sum(case.rows) // len(case.rows))
    num_sms = device.properties.num_sms
    ways: list[_Way] = []
    refusals: dict[str, str] = {}
    choice = choose_swap(case.problem, expected, device.name)
    names = {OURS: "auto"}
    if both_ways or grouped_set(case.set_name).both_ways:
        names[OTHER] = "off" if choice.config.swap_ab else "on"
    for name, swap_ab in names.items():
        try:
            choice = choose_swap(case.problem, expected, device.name, swap_ab)
        except ConfigError as error:
            if name == OURS:
                raise
            refusals[name] = str(error)
            continue
        plan = grouped_sm90.plan(case.problem, choice.config, num_sms)
        ways.append(_Way(name, choice, plan))
    return _Prepared(case, tuple(ways), refusals)


class _Bench:
    """Measures one case after another; those of one problem share its operands."""

    def __init__(
        self, watch: Stopwatch, reader: StreamReader, sampler: StateSampler, method: Method,
        images: Mapping[str, bytes | str], peers: bool, converter: Converter,
        cubins: Cubins | None, read_bytes_per_s: float,
    ) -> None:  # fmt: skip
        self.watch = watch
        self.reader = reader
        self.sampler = sampler
        self.method = method
        self.images = images
        """By entry."""
        self.peers = peers
        self.converter = converter
        self.cubins = cubins
        self.read_bytes_per_s = read_bytes_per_s
        """What the read stream of this run reaches; quick problems have no stream of their own."""
        self._workload: GroupedWorkload | None = None

    def measure(self, prepared: _Prepared, seconds: float) -> GroupedResult:
        """Check and time one case.

        Raises: WrongResultError if ours is wrong.
        """
        case = prepared.case
        quick = grouped_set(case.set_name).quick
        workload = self._operands(case)
        checks: dict[str, Check] = {}
        refusals = dict(prepared.refusals)
        groups = 1 if quick else CHECKED_GROUPS
        with ExitStack() as stack:
            contenders: list[Contender] = []
            for way in prepared.ways:
                launch = way.plan.launch
                image = self.images[launch.entry]
                contender = launch_contender(way.name, self.watch, launch, image, workload.copies)
                stack.callback(contender.close)
                contenders.append(contender)
                checks[way.name] = check(
                    workload, contender, way.choice.config, groups,
                    ctas=launch.grid_ctas[0],
                )  # fmt: skip
                checks[way.name].require(str(way.choice.config))
            for peer in grouped_peers.serving(case) if self.peers else ():
                try:
                    contender = self._peer(peer, case, workload)
                except PeerError as error:
                    refusals[peer] = str(error)
                    continue
                stack.callback(contender.close)
                if peer in _by_cubins(self.cubins):
                    config = prepared.ways[0].choice.config
                    checks[peer] = check(workload, contender, config, groups, exact=False)
                    if not checks[peer].ok:
                        refusals[peer] = "its result is wrong"
                        continue
                contenders.append(contender)
            with self.sampler:
                samples = compare(contenders, QUICK if quick else self.method, seconds)
            nbytes = case.problem.compulsory_bytes(workload.sizes)
            if quick:
                stream_s = nbytes / self.read_bytes_per_s
            else:
                stream, read = self.reader.contender(nbytes)
                stack.callback(stream.close)
                stream_s = compare([stream], STREAM, 0.0)[stream.name].median * nbytes / read
        return GroupedResult(
            case, prepared.ways[0].choice, samples, checks,
            self.converter.peers(case, samples), refusals, stream_s, workload.sizes,
            self.sampler.summary(),
        )  # fmt: skip

    def _peer(self, name: str, case: GroupedCase, workload: GroupedWorkload) -> Contender:
        """A peer on all copies of a workload.

        Raises: PeerError if it is not here, or refuses the problem.
        """
        if self.cubins is not None and name in _by_cubins(self.cubins):
            return grouped_contender(name, workload, self.watch, self.cubins)
        return grouped_peers.contender(name, case, workload, self.watch)

    def _operands(self, case: GroupedCase) -> GroupedWorkload:
        """The workload of the case's problem, with the case's rows."""
        if self._workload is None or self._workload.problem != case.problem:
            self.close()
            self._workload = GroupedWorkload(self.watch.device, case.problem)
        self._workload.use(case.rows)
        return self._workload

    def close(self) -> None:
        """Give the operands back."""
        if self._workload is not None:
            self._workload.free()
            self._workload = None


def _by_cubins(cubins: Cubins | None) -> dict[str, str]:
    """Names of the peers that are measured by cubins, with what they are."""
    names = grouped_peers.DEEPGEMM.values() if cubins else ()
    return {name: cubins.what(name) for name in names if cubins}


def summarise(results: Sequence[GroupedResult]) -> list[dict[str, Any]]:
    """Ratios (time of the peer / ours) per set, kind and peer, as for dense problems."""
    found: dict[tuple[str, str], list[tuple[GroupedCase, float]]] = {}
    for result in results:
        label = f"{result.case.set_name}/{result.case.kind}"
        for name, samples in result.samples.items():
            if name != OURS:
                ratio = paired_ratio(samples, result.samples[OURS])
                found.setdefault((label, name), []).append((result.case, ratio))
        for peer in result.converted:
            name = f"{peer.name} (converted)"
            found.setdefault((label, name), []).append((result.case, peer.ratio))
    return summary_of(found, lambda case: {"case": case.label})


def _line(result: GroupedResult) -> str:
    ours = result.samples[OURS].median
    others = ", ".join(
        f"{paired_ratio(s, result.samples[OURS]):.3f}x of {n}"
        for n, s in result.samples.items()
        if n != OURS
    )
    others += "".join(f", {x.ratio:.3f}x of {x.name} (converted)" for x in result.converted)
    share = result.stream_s / ours
    return f"{ours * 1e6:.2f} us, {share:.1%} of the read stream{', ' if others else ''}{others}"

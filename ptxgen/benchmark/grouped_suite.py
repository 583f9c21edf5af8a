"""grouped_suite: measure grouped problems on one GPU beside DeepGEMM and a read stream."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ptxgen.benchmark import grouped_peers
from ptxgen.benchmark.ceilings import StreamReader, image_of, measure_ceilings
from ptxgen.benchmark.check import SAMPLE, Check, sample_indices
from ptxgen.benchmark.gpu_state import StateSampler
from ptxgen.benchmark.grouped_sets import GroupedCase
from ptxgen.benchmark.grouped_workload import GroupedWorkload
from ptxgen.benchmark.method import Contender, Method, Samples, compare, paired_ratio
from ptxgen.benchmark.peers import PeerError
from ptxgen.benchmark.replay import Stopwatch, launch_contender, stopwatch
from ptxgen.benchmark.report import SCHEMA, geomean
from ptxgen.benchmark.suite import commit_of, environment_of, software_of
from ptxgen.errors import ConfigError, WrongResultError
from ptxgen.kernels import grouped_sm90
from ptxgen.launcher.device import GpuDevice
from ptxgen.operands import Operands
from ptxgen.swap_selection import SwapChoice, choose_swap
from ptxgen.verification import exact_result

OURS = "ptxgen"
OTHER = "ptxgen, the other way"
"""Ours with the operands swapped where the choice was not to, and straight where it was."""
LEVEL = "kernel"
"""What is timed: kernels in a replayed CUDA graph, nothing around them."""
CHECKED_GROUPS = 4
"""Groups of a problem whose results are compared bit for bit."""


@dataclass(frozen=True)
class GroupedResult:
    """One problem: ours and the peers."""

    case: GroupedCase
    choice: SwapChoice
    samples: dict[str, Samples]
    checks: dict[str, Check]
    refusals: dict[str, str]
    stream_s: float
    """What the read stream takes for all compulsory bytes."""
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
    measured_by: str = "",
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure all cases and return the report, schema ptxgen.bench/1.

    peers: DeepGEMM too, where it is installed. both_ways: the best config of the other kind too,
    swapped or straight.

    Raises: ConfigError if no config serves a problem; DriverError, AssemblyError.
    """
    method = method or Method()
    began, started_at = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sampler = StateSampler(device)
    results: list[GroupedResult] = []
    skipped: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    with stopwatch(device) as watch, ExitStack() as stack:
        reader = StreamReader(watch)
        stack.callback(reader.close)
        dtypes = tuple(sorted({case.problem.a for case in cases}))
        ceilings = measure_ceilings(watch, reader, dtypes, method, executor, note)
        for index, case in enumerate(cases):
            label = f"{case.set_name}/{case.kind} {case.label}"
            left = began + time_budget_s - time.monotonic()
            if left <= 0:
                skipped.append({"case": label, "reason": f"no time left of {time_budget_s:.0f} s"})
                continue
            try:
                result = _measure(
                    case, watch, reader, sampler, method, left / (len(cases) - index), peers,
                    both_ways,
                )  # fmt: skip
            except WrongResultError as error:
                failed.append({"case": label, "reason": str(error)})
                note(f"{label}: WRONG: {error}")
                continue
            results.append(result)
            note(f"{label}: {_line(result)}")
    return {
        "schema": SCHEMA,
        "hardware": {**asdict(device.properties), **sampler.limits()},
        "environment": {
            **asdict(environment_of(device, sampler)),
            **software_of(),
            "commit": commit_of(),
        },
        "measured_by": measured_by,
        "level": LEVEL,
        "started_at": started_at,
        "seconds": time.monotonic() - began,
        "method": asdict(method),
        "ceilings": ceilings.as_data(),
        "peers": grouped_peers.WHAT,
        "results": [result.as_data() for result in results],
        "summary": summarise(results),
        "skipped": skipped,
        "failed": failed,
    }


def _measure(
    case: GroupedCase, watch: Stopwatch, reader: StreamReader, sampler: StateSampler,
    method: Method, seconds: float, peers: bool, both_ways: bool,
) -> GroupedResult:  # fmt: skip
    """Check and time one case.

    Raises: WrongResultError if ours is wrong.
    """
    problem = case.problem
    expected_rows = -(-sum(case.rows) // len(case.rows))
    choice = choose_swap(problem, expected_rows, watch.device.name)
    checks: dict[str, Check] = {}
    refusals: dict[str, str] = {}
    with ExitStack() as stack:
        workload = GroupedWorkload(watch.device, case)
        stack.callback(workload.free)
        contenders = [_ours(OURS, watch, workload, choice.config)]
        stack.callback(contenders[0].close)
        checks[OURS] = check(workload, contenders[0], choice.config)
        checks[OURS].require(str(choice.config))
        if both_ways:
            other = "off" if choice.config.swap_ab else "on"
            try:
                config = choose_swap(problem, expected_rows, watch.device.name, other).config
            except ConfigError as error:
                refusals[OTHER] = str(error)
            else:
                contenders.append(_ours(OTHER, watch, workload, config))
                stack.callback(contenders[-1].close)
                checks[OTHER] = check(workload, contenders[-1], config)
                checks[OTHER].require(str(config))
        peer = grouped_peers.serves(case)
        if peers and peer is not None:
            try:
                contenders.append(grouped_peers.contender(workload, watch))
                stack.callback(contenders[-1].close)
            except PeerError as error:
                refusals[peer] = str(error)
        with sampler:
            samples = compare(contenders, method, seconds)
        nbytes = problem.compulsory_bytes(workload.sizes)
        stream, read = reader.contender(nbytes)
        stack.callback(stream.close)
        stream_s = compare([stream], method, 0.0)[stream.name].median * nbytes / read
    return GroupedResult(
        case, choice, samples, checks, refusals, stream_s, workload.sizes, sampler.summary()
    )


def _ours(name: str, watch: Stopwatch, workload: GroupedWorkload, config: Any) -> Contender:
    plan = grouped_sm90.plan(workload.problem, config, watch.device.properties.num_sms)
    copies = workload.addresses(plan.launch)
    return launch_contender(name, watch, plan.launch, image_of(plan), copies)


def check(workload: GroupedWorkload, contender: Contender, config: Any) -> Check:
    """Reset every copy of D, replay once, and compare some groups bit for bit.

    kgrouped: D is compared after one call on zeros; a replay adds as often as it calls each copy,
    so its sums are compared with that multiple.
    """
    problem = workload.problem
    workload.reset_d()
    contender.replay(0, 1)
    segments = problem.segments(workload.sizes)
    if len(segments) > CHECKED_GROUPS:
        longest = max(segments, key=lambda s: s.length)
        chosen = {0, len(segments) - 1, len(segments) // 2, segments.index(longest)}
        segments = [segments[i] for i in sorted(chosen)]
    calls = contender.calls // len(workload.copies) if problem.mode == "kgrouped" else 1
    elements = wrong = 0
    worst = 0.0
    for number, segment in enumerate(segments):
        gemm = problem.gemm(segment.length)
        rows = sample_indices(gemm.m, config.tile_m, number)[: 2 * SAMPLE]
        columns = sample_indices(gemm.n, config.tile_n, number + 1)
        want = exact_result(gemm, Operands(*workload.group(segment)), rows, columns)
        if calls > 1:
            want = _added(want, calls)
        matrix = segment.group if problem.d_shape[0] > 1 else 0
        first = 0 if problem.mode == "kgrouped" else segment.start
        for copy in workload.copies:
            found = workload.read_rows(copy, matrix, rows + first)[:, columns]
            width = f"u{found.dtype.itemsize}"
            differs = np.ascontiguousarray(found).view(width) != want.view(width)
            wrong += int(np.count_nonzero(differs))
            elements += found.size
            with np.errstate(invalid="ignore"):
                error = np.abs(found.astype(np.float64) - want.astype(np.float64))
            rms = float(np.sqrt(np.mean(want.astype(np.float64) ** 2))) or 1.0
            worst = max(worst, float(np.max(np.where(np.isfinite(error), error, np.inf))) / rms)
    return Check(wrong == 0, elements, wrong, 0, worst, "bitwise, exact tensor-core model")


def _added(values: Any, times: int) -> Any:
    """float32 values added to zero that many times, one after another."""
    total = np.zeros_like(values)
    for _ in range(times):
        total = total + values
    return total


def summarise(results: Sequence[GroupedResult]) -> list[dict[str, Any]]:
    """Ratios (time of the peer / ours) per set, kind and peer, as for dense problems."""
    found: dict[tuple[str, str], list[tuple[GroupedCase, float]]] = {}
    for result in results:
        label = f"{result.case.set_name}/{result.case.kind}"
        for name, samples in result.samples.items():
            if name != OURS:
                ratio = paired_ratio(samples, result.samples[OURS])
                found.setdefault((label, name), []).append((result.case, ratio))
    return [
        {
            "set": label,
            "peer": peer,
            "problems": len(pairs),
            "geomean": geomean([ratio for _, ratio in pairs]),
            "min": min(ratio for _, ratio in pairs),
            "losing": [
                {"case": case.label, "ratio": ratio}
                for case, ratio in sorted(pairs, key=lambda pair: pair[1])
                if ratio < 1
            ],
        }
        for (label, peer), pairs in found.items()
    ]


def _line(result: GroupedResult) -> str:
    ours = result.samples[OURS].median
    others = ", ".join(
        f"{paired_ratio(s, result.samples[OURS]):.3f}x of {n}"
        for n, s in result.samples.items()
        if n != OURS
    )
    share = result.stream_s / ours
    return f"{ours * 1e6:.2f} us, {share:.1%} of the read stream{', ' if others else ''}{others}"

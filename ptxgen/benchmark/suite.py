"""suite: measure cases on one GPU, within a time budget, and report."""

import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ptxgen import selection
from ptxgen.assembler import plan_assembly
from ptxgen.benchmark.ceilings import StreamReader, measure_ceilings
from ptxgen.benchmark.check import Check, Expected, check, expect
from ptxgen.benchmark.conversion import THROUGH, PeerTable
from ptxgen.benchmark.gpu_state import StateSampler, clocks_class
from ptxgen.benchmark.measuring import our_contender
from ptxgen.benchmark.method import Contender, Method, compare
from ptxgen.benchmark.peers import Peer, PeerError
from ptxgen.benchmark.replay import Stopwatch, stopwatch
from ptxgen.benchmark.report import (
    SCHEMA,
    PeerResult,
    Result,
    measured_peer,
    summarise,
)
from ptxgen.benchmark.sets import BenchSet, Kind, regular_shape
from ptxgen.benchmark.workload import Workload
from ptxgen.devices import GpuModel
from ptxgen.dtypes import dtype
from ptxgen.errors import ToolMissingError, WrongResultError
from ptxgen.images import DRIVER, Image, assemble_all
from ptxgen.kernels import k_parts, unit_of
from ptxgen.launcher.device import GpuDevice
from ptxgen.problem import Gemm
from ptxgen.tuning_table import Environment

OURS = "ptxgen"
REGULAR = "regular shape"
"""Name of our own time at the next regular shape, listed among the peers."""
CASE_SHARE = 0.6
"""Part of a case's share of the time that goes into its rounds; the rest makes its operands."""


@dataclass(frozen=True)
class Case:
    """One problem to measure."""

    set_name: str
    kind: str
    problem: Gemm
    regular: Gemm | None = None
    """A problem of ours that is measured beside it."""
    chosen: Any = None
    """A Config that is measured whatever selection says."""


def cases_of(sets: Sequence[BenchSet], kinds: Sequence[Kind]) -> list[Case]:
    """Every shape of every set, in every kind.

    Raises: ProblemError.
    """
    return [
        Case(
            s.name, kind.name, kind.problem(shape),
            kind.problem(regular_shape(shape)) if s.beside_regular else None,
        )
        for kind in kinds
        for s in sets
        for shape in s.shapes
    ]  # fmt: skip


def environment_of(device: GpuDevice, sampler: StateSampler) -> Environment:
    """Under what conditions this GPU measures."""
    try:
        assembler = plan_assembly(".version 8.0\n.target sm_90a\n", device.properties.arch).identity
    except ToolMissingError:
        assembler = DRIVER
    major, minor = device.properties.driver_version
    return Environment(
        selection.model_of(device.name).name,
        clocks_class(sampler.limits(), device.properties.sm_clock_khz),
        f"{major}.{minor}",
        assembler,
    )


def provenance(device: GpuDevice, sampler: StateSampler) -> dict[str, Any]:
    """What every report says of where and when it was measured."""
    return {
        "hardware": {**asdict(device.properties), **sampler.limits()},
        "environment": {
            **asdict(environment_of(device, sampler)), **software_of(), "commit": commit_of(),
        },
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip


def run(
    cases: Sequence[Case],
    device: GpuDevice,
    peers: Sequence[Peer],
    executor: Executor,
    *,
    method: Method | None = None,
    time_budget_s: float = float("inf"),
    table: PeerTable | None = None,
    measured_by: str = "",
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure all cases and return the report, schema ptxgen.bench/1.

    Cases for which no time is left are named in `skipped`, wrong results in `failed`.

    Raises: ConfigError if no kernel serves a problem; DriverError, AssemblyError.
    """
    method = method or Method()
    began = time.monotonic()
    end = began + time_budget_s
    sampler = StateSampler(device)
    where = provenance(device, sampler)
    environment = environment_of(device, sampler)
    gpu = selection.model_of(device.name, device.properties.num_sms)
    note(f"{device.name}: {len(cases)} problems; assembling")
    choices = _choose_all(cases, gpu, environment)
    images = assemble_all(
        executor, {c.config: (c.kernel, c.config) for c in choices.values()}.values()
    )
    dtypes = tuple(sorted({case.problem.a for case in cases}))
    results: list[Result] = []
    skipped: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    with stopwatch(device) as watch, ExitStack() as stack:
        reader = StreamReader(watch)
        stack.callback(reader.close)
        ceilings = measure_ceilings(watch, reader, dtypes, method, executor, note)
        bench = _Bench(watch, reader, peers, method, table, sampler, choices, images)
        for index, case in enumerate(cases):
            p = case.problem
            label = f"{case.set_name}/{case.kind} {p.m} x {p.n} x {p.k}"
            left = end - time.monotonic()
            if left <= 0:
                skipped.append({"case": label, "reason": f"no time left of {time_budget_s:.0f} s"})
                continue
            try:
                result = bench.measure(case, CASE_SHARE * left / (len(cases) - index))
            except WrongResultError as error:
                failed.append({"case": label, "reason": str(error)})
                note(f"{label}: WRONG: {error}")
                continue
            results.append(result)
            note(f"{label}: {_line(result)}")
        after = measure_ceilings(watch, reader, dtypes, method, executor)
    return {
        "schema": SCHEMA,
        **where,
        "measured_by": measured_by,
        "seconds": time.monotonic() - began,
        "method": {**asdict(method), "text": METHOD},
        "ceilings": {**ceilings.as_data(), "after": after.as_data()},
        "peers": {peer.name: peer.what for peer in peers},
        "results": [result.as_data(ceilings.as_data()) for result in results],
        "summary": summarise(results),
        "skipped": skipped,
        "failed": failed,
    }


METHOD = (
    "Each problem: operands from a pool of quantised normal numbers, in so many copies that the "
    "others exceed twice the L2; every contender's result checked on the timed buffers (ours "
    "bitwise against the exact tensor-core model at seeded elements, all elements written); calls "
    "captured into a CUDA graph over all copies; all contenders warm until settled, then paired "
    "rounds in an order that is reversed each round and turned on every second one, timed by "
    "events; the time is the median of the rounds, a ratio the median over rounds of peer / ours. "
    "Programmatic dependent launch off."
)


class _Bench:
    """Measures one case after another."""

    def __init__(
        self, watch: Stopwatch, reader: StreamReader, peers: Sequence[Peer], method: Method,
        table: PeerTable | None, sampler: StateSampler, choices: dict[Gemm, selection.Choice],
        images: dict[Any, Image],
    ) -> None:  # fmt: skip
        self.watch = watch
        self.reader = reader
        self.peers = peers
        self.method = method
        self.table = table
        self.sampler = sampler
        self.choices = choices
        self.images = images

    def measure(self, case: Case, seconds: float) -> Result:
        """Check and time one case against the peers.

        Raises: WrongResultError if ours is wrong, or not assembled cleanly.
        """
        problem = case.problem
        choice = self.choices[problem]
        image = self._image(choice)
        checks: dict[str, Check] = {}
        refusals: dict[str, str] = {}
        expectations: dict[Gemm, Expected] = {}
        with ExitStack() as stack:
            workload = Workload(self.watch.device, problem)
            stack.callback(workload.free)
            tile = (choice.config.tile_m, choice.config.tile_n)
            contenders = [our_contender(OURS, self.watch, workload, image)]
            stack.callback(contenders[0].close)
            parts = k_parts(choice.config, problem)
            expected = expect(
                problem,
                workload.operands,
                tile,
                exact=True,
                k_parts=parts,
                unit=unit_of(choice.config),
            )
            checks[OURS] = check(workload, contenders[0], expected)
            checks[OURS].require(str(choice.config))
            for peer in self.peers:
                if not peer.serves(problem):
                    continue
                try:
                    contender = peer.contender(workload, self.watch)
                except PeerError as error:
                    refusals[peer.name] = str(error)
                    continue
                stack.callback(contender.close)
                theirs = peer.problem(problem)
                if theirs not in expectations:
                    operands = peer.operands(workload)
                    expectations[theirs] = expect(theirs, operands, tile, exact=False)
                checks[peer.name] = check(workload, contender, expectations[theirs])
                if checks[peer.name].ok:
                    contenders.append(contender)
                else:
                    refusals[peer.name] = "its result is wrong"
            if case.regular is not None:
                contenders.append(self._regular(case.regular, stack, checks))
            with self.sampler:
                samples = compare(contenders, self.method, seconds)
            # Not in the rounds: whoever came after it would find a cooler GPU.
            reader, nbytes = self.reader.contender(_read_bytes(problem))
            stack.callback(reader.close)
            warm = replace(self.method, settle_s=0.0)
            stream_samples = compare([reader], warm, 0.0)[reader.name]
        ours = samples[OURS]
        found = [
            measured_peer(c.name, samples[c.name], ours, checks[c.name], c.name != REGULAR)
            for c in contenders[1:]
        ]
        stream = stream_samples.median * _read_bytes(problem) / nbytes
        return Result(
            case.set_name, case.kind, problem, choice.kernel, choice.config,
            f"{choice.source}: {choice.why}", ours, checks[OURS],
            (*found, *self._converted(problem, found, ours.median)), refusals, stream,
            self.sampler.summary(),
        )  # fmt: skip

    def _image(self, choice: selection.Choice) -> Image:
        image = self.images[choice.config]
        if image.error:
            raise WrongResultError(f"{choice.config} cannot be used: {image.error}")
        return image

    def _regular(self, problem: Gemm, stack: ExitStack, checks: dict[str, Any]) -> Contender:
        """Ours at the next regular shape."""
        choice = self.choices[problem]
        image = self._image(choice)
        workload = Workload(self.watch.device, problem)
        stack.callback(workload.free)
        contender = our_contender(REGULAR, self.watch, workload, image)
        stack.callback(contender.close)
        tile = (choice.config.tile_m, choice.config.tile_n)
        parts = k_parts(choice.config, problem)
        expected = expect(
            problem, workload.operands, tile, exact=True, k_parts=parts, unit=unit_of(choice.config)
        )
        checks[REGULAR] = check(workload, contender, expected)
        checks[REGULAR].require(str(choice.config))
        return contender

    def _converted(
        self, problem: Gemm, found: Sequence[PeerResult], ours: float
    ) -> list[PeerResult]:
        """Peers that did not run here, through those that did."""
        if self.table is None:
            return []
        measured = {peer.name: peer.seconds for peer in found}
        converted = []
        for name in sorted(set(THROUGH) - set(measured)):
            seconds = self.table.convert(name, problem, measured)
            if seconds is not None:
                how = f"through {THROUGH[name]} of this run, by {self.table.source}"
                converted.append(PeerResult(name, seconds, seconds / ours, None, None, how))
        return converted


def _choose_all(
    cases: Sequence[Case], gpu: GpuModel, environment: Environment
) -> dict[Gemm, selection.Choice]:
    choices = {}
    for case in cases:
        for problem in filter(None, (case.problem, case.regular)):
            if case.chosen is not None and problem is case.problem:
                choices[problem] = selection.given(problem, case.chosen, gpu)
            else:
                choices[problem] = selection.choice(problem, gpu, environment=environment)
    return choices


def _read_bytes(problem: Gemm) -> int:
    """Bytes that any kernel must read."""
    d_bytes = problem.m * problem.n * dtype(problem.d).bytes
    return problem.compulsory_bytes - d_bytes


def _line(result: Result) -> str:
    rivals = [peer for peer in result.peers if peer.rival]
    best = min(rivals, key=lambda peer: peer.seconds, default=None)
    beside = f", {best.ratio:.3f}x of {best.name}" if best else ""
    return f"{result.ours.median * 1e6:.2f} us, {result.tflops:.0f} TFLOPS{beside}"


def software_of() -> dict[str, str]:
    """Versions of what a measurement depends on."""
    found = {"python": platform.python_version(), "os": platform.platform()}
    for name in ("torch", "deep-gemm", "cuda-bindings", "numpy", "ptxgen"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit_of() -> str | None:
    """The commit of the checkout that this runs from; None where no git keeps this file."""
    here = Path(__file__)
    found = ""
    for words in (("ls-files", "--error-unmatch", here.name), ("rev-parse", "HEAD")):
        try:
            done = subprocess.run(
                ["git", "-C", str(here.parent), *words],
                capture_output=True, text=True, timeout=10, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return None
        found = done.stdout.strip()
    return found

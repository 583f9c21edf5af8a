"""A whole benchmark run on a GPU of host memory: what is checked, compared, reported, left out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxgen import selection
from ptxgen.benchmark import ceilings, conversion, measuring, suite
from ptxgen.benchmark.method import Contender, Method
from ptxgen.benchmark.peers import Peer, PeerError
from ptxgen.benchmark.sets import KINDS, BenchSet
from ptxgen.benchmark.suite import Case, cases_of, run
from ptxgen.benchmark.workload import Workload
from ptxgen.exact_model import exact_result
from ptxgen.images import Image
from ptxgen.launcher.properties import DeviceProperties
from ptxgen.problem import Gemm

SHAPES = BenchSet("tiny", "small enough for a CPU", ((40, 48, 128), (64, 32, 256)))
FP8 = KINDS["fp8-tensor"]
QUICK = Method(slot_s=1e-6, lead_share=0.0, settle_s=0.0, min_rounds=2, max_rounds=3)
OURS_S, PEER_S = 2e-6, 3e-6


class HostGpu:
    """A GpuDevice whose memory is the host's."""

    name = "NVIDIA H200"
    index = 0
    properties = DeviceProperties(
        name, 0, (9, 0), "sm_90a", 132, 1980000, 3201000, 1 << 12, 1 << 37, 232448, 233472, (13, 0)
    )

    def __init__(self) -> None:
        self.memory = np.zeros(1 << 26, np.uint8)
        self.used = 0
        self.live: dict[int, int] = {}
        self.driver = SimpleNamespace(cuMemcpyDtoD=self.copy)

    def alloc(self, nbytes: int) -> int:
        address, self.used = self.used, self.used + nbytes + -nbytes % 256
        self.live[address] = nbytes
        return address

    def free(self, address: int) -> None:
        del self.live[address]

    def write(self, address: int, data: Any) -> None:
        source = np.frombuffer(data, np.uint8)
        self.memory[address : address + source.size] = source

    def read(self, address: int, nbytes: int) -> bytes:
        return self.memory[address : address + nbytes].tobytes()

    def fill(self, address: int, nbytes: int, value: int = 0xFF) -> None:
        self.memory[address : address + nbytes] = value

    def copy(self, target: int, source: int, nbytes: int) -> tuple[int]:
        self.memory[target : target + nbytes] = self.memory[source : source + nbytes]
        return (0,)

    def current(self) -> Any:
        return nullcontext()


def exact_contender(
    name: str, workload: Workload, seconds: float, problem: Gemm, **faults: Any
) -> Contender:
    """Writes the exact D of `problem` into every copy, and says that a call took `seconds`."""
    operands = faults.get("operands") or workload.operands
    d = exact_result(problem, operands, np.arange(problem.m), np.arange(problem.n))
    if "zeroed" in faults:
        d[faults["zeroed"]] = 0

    def replay(lead: int, count: int) -> float:
        for copy in workload.copies:
            workload.device.write(
                copy["d"], np.ascontiguousarray(d).view(np.uint8).reshape(-1).data
            )
        return seconds * count

    return Contender(name, 1, replay)


class FakePeer(Peer):
    """A peer that computes on the CPU."""

    def contender(self, workload: Workload, watch: Any) -> Contender:
        if self.what == "refuses":
            raise PeerError(f"{self.name}: n must be a multiple of 16")
        problem = self.problem(workload.problem)
        return exact_contender(
            self.name, workload, PEER_S, problem, operands=self.operands(workload)
        )


def peer(name: str, what: str = "") -> Peer:
    return FakePeer(name, what, True, "fast", lambda workload, copy: lambda: None)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HostGpu]:
    device = HostGpu()

    @contextmanager
    def watch(gpu: Any) -> Iterator[Any]:
        yield SimpleNamespace(device=gpu, stream=1)

    def ours(name: str, watch: Any, workload: Workload, image: Image) -> Contender:
        return exact_contender(name, workload, OURS_S, workload.problem)

    def launched(
        name: str, watch: Any, launch: Any, image: Any, copies: Sequence[Mapping[str, int]]
    ) -> Contender:
        return Contender(name, 1, lambda lead, count: 1e-3 * count)

    monkeypatch.setattr(suite, "stopwatch", watch)
    monkeypatch.setattr(suite, "our_contender", ours)
    monkeypatch.setattr(suite, "assemble_all", lambda pool, configs: {
        c: Image(k, c, b"", "hash", "ptxas", 168, "") for k, c in configs
    })  # fmt: skip
    monkeypatch.setattr(ceilings, "launch_contender", launched)
    monkeypatch.setattr(ceilings, "image_of", lambda plan: b"")
    monkeypatch.setattr(ceilings, "STREAM_BYTES", 1 << 20)
    monkeypatch.setattr(ceilings, "MMA_SETTLE_S", 0.0)
    monkeypatch.setenv("PTXGEN_TUNING_TABLE", str(tmp_path / "none.sqlite3"))
    selection.forget()
    yield device
    selection.forget()


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def bench(
    gpu: HostGpu, pool: Executor, peers: Sequence[Peer] = (), **options: Any
) -> dict[str, Any]:
    cases = options.pop("cases", None) or cases_of([SHAPES], [FP8])
    device: Any = gpu
    return run(cases, device, peers, pool, method=QUICK, measured_by="a test", **options)


@pytest.mark.parametrize("name", ["fp8-tensor", "fp8-rowcol", "fp8-block"])
def test_report_has_every_problem_with_raw_samples_and_ratios(
    gpu: HostGpu, pool: Executor, name: str
) -> None:
    cases = cases_of([SHAPES], [KINDS[name]])
    report = bench(gpu, pool, [peer("cublaslt_fp8_tensor_fast")], cases=cases)
    assert [(r["m"], r["n"], r["k"]) for r in report["results"]] == list(SHAPES.shapes)
    for result in report["results"]:
        assert result["correct"]
        assert result["samples_us"] == pytest.approx([OURS_S * 1e6] * 3)
        assert result["peers"][0]["ratio"] == pytest.approx(PEER_S / OURS_S)
    assert {s["peer"] for s in report["summary"]} == {"cublaslt_fp8_tensor_fast", "best"}
    assert all(s["geomean"] == pytest.approx(1.5) and not s["losing"] for s in report["summary"])
    json.dumps(report)


def test_a_wrong_result_is_named_and_never_timed(
    gpu: HostGpu, pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ours(name: str, watch: Any, workload: Workload, image: Image) -> Contender:
        return exact_contender(name, workload, OURS_S, workload.problem, zeroed=np.s_[-1:, :])

    monkeypatch.setattr(suite, "our_contender", ours)
    report = bench(gpu, pool)
    assert report["results"] == []
    assert len(report["failed"]) == len(SHAPES.shapes)
    assert "wrong" in report["failed"][0]["reason"]


def test_a_refusing_peer_is_named_with_its_reason(gpu: HostGpu, pool: Executor) -> None:
    report = bench(gpu, pool, [peer("torch_fp8_rowwise", "refuses")])
    assert all(
        "multiple of 16" in r["not_measured"]["torch_fp8_rowwise"] for r in report["results"]
    )


def test_an_absent_peer_is_converted_through_one_of_the_same_run(
    gpu: HostGpu, pool: Executor
) -> None:
    through = "cublaslt_fp8_tensor_fast"
    times = {
        (name, *shape): us
        for shape in SHAPES.shapes
        for name, us in ((through, 10.0), ("deepgemm_fp8_1d2d", 12.0))
    }
    table = conversion.PeerTable("h200.json", times)
    report = bench(gpu, pool, [peer(through)], table=table)
    for result in report["results"]:
        (converted,) = [p for p in result["peers"] if p["peer"] == "deepgemm_fp8_1d2d"]
        assert converted["us"] == pytest.approx(1.2 * PEER_S * 1e6)
        assert "h200.json" in converted["converted"]
    assert "deepgemm_fp8_1d2d (converted)" in {s["peer"] for s in report["summary"]}


def test_problems_without_time_are_listed_as_skipped(gpu: HostGpu, pool: Executor) -> None:
    report = bench(gpu, pool, time_budget_s=1e-9)
    assert [s["case"].split()[0] for s in report["skipped"]] == ["tiny/fp8-tensor"] * 2


def test_odd_shapes_are_measured_beside_regular_ones(gpu: HostGpu, pool: Executor) -> None:
    beside = replace(SHAPES, beside_regular=True)
    report = bench(gpu, pool, cases=cases_of([beside], [FP8]))
    assert all(r["peers"][0]["peer"] == suite.REGULAR for r in report["results"])
    assert "best" not in {s["peer"] for s in report["summary"]}


def test_a_given_config_is_the_one_that_is_measured(gpu: HostGpu, pool: Executor) -> None:
    problem = FP8.problem(SHAPES.shapes[0])
    config = selection.rank(problem, selection.model_of("H200"))[5].config
    report = bench(gpu, pool, cases=[Case("custom", "fp8", problem, None, config)])
    assert report["results"][0]["config_name"] == str(config)
    assert report["results"][0]["config_source"].startswith("caller")


def test_all_memory_is_given_back(gpu: HostGpu, pool: Executor) -> None:
    bench(gpu, pool, [peer("cublaslt_fp8_tensor_fast")])
    assert gpu.live == {}


def test_the_tuners_measure_reports_wrong_configs_and_times_the_others(
    gpu: HostGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = FP8.problem(SHAPES.shapes[0])
    configs = [r.config for r in selection.rank(problem, selection.model_of("H200"))[:3]]
    images = [Image("gemm_sm90", c, b"", "hash", "ptxas", 168, "") for c in configs]

    def ours(name: str, watch: Any, workload: Workload, image: Image) -> Contender:
        faults = {"zeroed": np.s_[:1, :]} if image.config == configs[1] else {}
        return exact_contender(name, workload, OURS_S, workload.problem, **faults)

    monkeypatch.setattr(measuring, "our_contender", ours)
    watch: Any = SimpleNamespace(device=gpu, stream=1)
    measure = measuring.KernelMeasure(watch, QUICK)
    outcomes = measure(problem, images, rounds=2)
    measure.close()
    assert outcomes[0].samples == pytest.approx((OURS_S, OURS_S))
    assert outcomes[1].samples == ()
    assert "wrong" in outcomes[1].error
    assert outcomes[2].samples
    assert gpu.live == {}

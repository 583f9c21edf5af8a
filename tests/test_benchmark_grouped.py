"""Grouped benchmarks measure what they say: their sets, their operands, and what they accept."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from test_benchmark_suite import QUICK, HostGpu

from ptxgen.benchmark import ceilings, grouped_sets, grouped_suite
from ptxgen.benchmark.ceilings import StreamReader
from ptxgen.benchmark.conversion import PeerTable, default_table, load_peer_table
from ptxgen.benchmark.grouped_check import check
from ptxgen.benchmark.grouped_conversion import OURS, Converter
from ptxgen.benchmark.grouped_plot import swap_curves
from ptxgen.benchmark.grouped_sets import SETS, GroupedSet, cases_of
from ptxgen.benchmark.grouped_suite import OTHER, by_problem
from ptxgen.benchmark.grouped_workload import GroupedWorkload
from ptxgen.benchmark.method import Contender, Method, Samples
from ptxgen.errors import ArgumentError
from ptxgen.exact_model import exact_result
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm90
from ptxgen.operands import Operands

MODES: dict[str, tuple[GroupedGemm, tuple[int, ...]]] = {
    "masked": (
        GroupedGemm("masked", 3, 24, 136, 256, scale="block", accumulate="promoted",
                    scale_a_strides=(48, 1, 24)), (17, 0, 24),
    ),
    "contiguous": (
        GroupedGemm("contiguous", 3, 41, 136, 256, scale="block", accumulate="promoted",
                    scale_a_strides=(82, 1, 41)), (17, 0, 24),
    ),
    "kgrouped": (
        GroupedGemm("kgrouped", 3, 24, 136, 256, d="f32", scale="group", accumulate="promoted",
                    alignment=128, scale_a_strides=(48, 1, 24), scale_b_strides=(272, 1, 136)),
        (128, 0, 128),
    ),
}  # fmt: skip


@dataclass
class Watch:
    """A stopwatch on whose GPU nothing is timed."""

    device: Any
    stream: int = 1


def computed(workload: GroupedWorkload, damaged_group: int = -1) -> Contender:
    """Writes the exact D of every group into every copy, one of them with a flipped bit."""
    problem, gpu = workload.problem, workload.device

    def replay(lead: int, count: int) -> float:
        for copy in workload.copies:
            for segment in problem.segments(workload.sizes):
                gemm = problem.gemm(segment.length)
                operands = Operands(*workload.group(segment))
                d = exact_result(gemm, operands, np.arange(gemm.m), np.arange(gemm.n))
                if segment.group == damaged_group:
                    d.view(np.uint8)[0, 0] ^= 1
                first = 0 if problem.mode == "kgrouped" else segment.start
                matrix = segment.group if problem.d_shape[0] > 1 else 0
                place = (matrix * problem.group_stride("d") + first * problem.n) * d.itemsize
                gpu.write(copy["d"] + place, d.tobytes())
        return 1e-6 * count

    return Contender("exact", len(workload.copies), replay)


@pytest.mark.parametrize("mode", MODES)
def test_check_accepts_exact_groups_and_rejects_one_wrong_bit(mode: str) -> None:
    problem, rows = MODES[mode]
    gpu: Any = HostGpu()
    workload = GroupedWorkload(gpu, problem)
    workload.use(rows)
    config = grouped_sm90.default_config(problem)
    assert check(workload, computed(workload), config).ok
    assert not check(workload, computed(workload, damaged_group=2), config).ok
    workload.free()
    assert not gpu.live


@pytest.mark.parametrize("name", SETS)
def test_every_set_has_problems_that_a_config_serves(name: str) -> None:
    for case in cases_of((name,)):
        assert grouped_sm90.default_config(case.problem)
        assert len(case.rows) == case.problem.groups


def test_an_unknown_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match="masked, contiguous"):
        cases_of(("other",))


def test_cases_that_share_operands_follow_each_other() -> None:
    problems = [case.problem for case in by_problem(cases_of(("masked", "swap-curve")))]
    changes = sum(a != b for a, b in pairwise(problems))
    assert changes == len(set(problems)) - 1


def test_weight_bound_peers_are_converted_by_the_bandwidth_of_a_copy() -> None:
    path = default_table()
    assert path is not None
    table = load_peer_table(path)
    watch: Any = None
    converter = Converter(watch, Method(), table, table.copy_bytes_per_s / 2)
    case = next(c for c in cases_of(("masked",)) if c.rows[0] == 96 and c.problem.k == 7168)
    (peer,) = converter.peers(case, {OURS: Samples((100e-6,))})
    assert peer.seconds == pytest.approx(2 * 132.36e-6)
    assert peer.ratio == pytest.approx(2 * 1.3236)
    assert "copy" in peer.converted


def test_a_curve_tells_swapped_from_straight_whichever_was_chosen() -> None:
    results = [
        {"set": name, "groups": 2, "n": 64, "k": 128, "rows": [rows] * 2, "swap_ab": swapped,
         "us": 1.0, "read_stream_us": 0.5, "peers": [{"peer": OTHER, "us": 2.0}]}
        for name, rows, swapped in (
            ("swap-curve", 24, False), ("swap-curve", 8, True), ("swap-curve", 16, True),
            ("speculative", 4, True),
        )
    ]  # fmt: skip
    (points,) = swap_curves(results).values()
    assert [p["rows"] for p in points] == [8, 16, 24]
    assert [p["us"][True] for p in points] == [1.0, 1.0, 2.0]


def test_a_run_reports_every_case_both_ways_beside_a_converted_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu: Any = HostGpu()
    shapes = tuple((2, (rows, rows), 64, 256) for rows in (8, 3))
    tiny = {
        "tiny": GroupedSet("tiny", "", "masked", shapes, both_ways=True, quick=True),
        "sums": GroupedSet("sums", "", "kgrouped", ((2, (128, 256), 64, 24),), "fp8-group"),
    }
    monkeypatch.setattr(grouped_sets, "SETS", tiny)
    monkeypatch.setattr(grouped_sets, "MASKED_ROOM", 16)
    monkeypatch.setattr(grouped_suite, "stopwatch", lambda gpu: nullcontext(Watch(gpu)))
    monkeypatch.setattr(grouped_suite, "image_of", lambda plan: b"")
    monkeypatch.setattr(ceilings, "image_of", lambda plan: b"")
    monkeypatch.setattr(ceilings, "STREAM_BYTES", 1 << 20)
    monkeypatch.setattr(ceilings, "MMA_SETTLE_S", 0.0)
    monkeypatch.setattr(ceilings, "launch_contender", lambda name, *arguments: Contender(
        name, 1, lambda lead, count: 1e-3 * count
    ))  # fmt: skip
    monkeypatch.setattr(grouped_suite, "QUICK", QUICK)
    monkeypatch.setattr(grouped_suite, "STREAM", QUICK)
    monkeypatch.setattr(StreamReader, "copy_bytes_per_s", lambda self: 2e12)
    built: list[GroupedWorkload] = []

    class Noted(GroupedWorkload):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            built.append(self)

    def launched(name: str, *arguments: Any) -> Contender:
        return replace(computed(built[-1]), name=name)

    monkeypatch.setattr(grouped_suite, "GroupedWorkload", Noted)
    monkeypatch.setattr(grouped_suite, "launch_contender", launched)
    table = PeerTable("there", {}, {("deepgemm_fp8_masked", 2, 3, 64, 256): 5e-6}, 4e12)
    with ThreadPoolExecutor(1) as pool:
        report = grouped_suite.run(
            cases_of(("tiny", "sums")), gpu, pool, method=QUICK, table=table, measured_by="a test"
        )
    assert [r["rows"] for r in report["results"]] == [[8, 8], [3, 3], [128, 256]]
    assert len(built) == 2
    assert all(r["correct"] and r["level"] == "kernel" for r in report["results"])
    peers = {s["peer"]: s for s in report["summary"] if s["set"].startswith("tiny")}
    assert set(peers) == {OTHER, "deepgemm_fp8_masked (converted)"}
    assert peers[OTHER]["problems"] == 2
    assert not gpu.live
    json.dumps(report)

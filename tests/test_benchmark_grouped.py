"""Grouped benchmarks measure what they say: their sets, their operands, and what they accept."""

from typing import Any

import numpy as np
import pytest
from test_benchmark_suite import HostGpu

from ptxgen.benchmark.grouped_sets import SETS, GroupedCase, cases_of
from ptxgen.benchmark.grouped_suite import check
from ptxgen.benchmark.grouped_workload import GroupedWorkload
from ptxgen.benchmark.method import Contender
from ptxgen.errors import ArgumentError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm90
from ptxgen.operands import Operands
from ptxgen.verification import exact_result

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
                    alignment=128), (128, 0, 128),
    ),
}  # fmt: skip


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
    workload = GroupedWorkload(gpu, GroupedCase("tiny", "fp8-block", problem, rows))
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

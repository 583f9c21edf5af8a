"""grouped_check: looks at the results of a grouped kernel before it is timed."""

from typing import Any

import numpy as np

from ptxgen.benchmark.check import (
    EXACT,
    SAMPLE,
    TOLERANT,
    Check,
    Expected,
    compare_values,
    sample_indices,
    tolerance,
)
from ptxgen.benchmark.grouped_workload import GroupedWorkload
from ptxgen.benchmark.method import Contender
from ptxgen.exact_model import exact_result
from ptxgen.operands import Operands

CHECKED_GROUPS = 4
"""Groups of a problem whose results are compared bit for bit."""


def check(
    workload: GroupedWorkload, contender: Contender, config: Any, groups: int = CHECKED_GROUPS,
    exact: bool = True,
) -> Check:  # fmt: skip
    """Reset every copy of D, replay once, and compare up to `groups` groups: the longest, the
    first, the last and the middle one. exact: bit for bit (ours), else within a tolerance (peers).

    kgrouped: D is compared after one call on zeros; a replay adds as often as it calls each copy,
    so its sums are compared with that multiple.
    """
    problem = workload.problem
    workload.reset_d()
    contender.replay(0, 1)
    segments = problem.segments(workload.sizes)
    if len(segments) > groups:
        longest = segments.index(max(segments, key=lambda s: s.length))
        last = len(segments) - 1
        chosen = list(dict.fromkeys((longest, last, 0, last // 2)))
        segments = [segments[i] for i in sorted(chosen[:groups])]
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
        expected = Expected(rows, columns, want, None if exact else tolerance(gemm, want))
        for copy in workload.copies:
            found = workload.read_rows(copy, matrix, rows + first)[:, columns]
            bad, error = compare_values(found, expected)
            wrong, elements, worst = wrong + bad, elements + found.size, max(worst, error)
    return Check(wrong == 0, elements, wrong, 0, worst, EXACT if exact else TOLERANT)


def _added(values: Any, times: int) -> Any:
    """float32 values added to zero that many times, one after another."""
    total = np.zeros_like(values)
    for _ in range(times):
        total = total + values
    return total

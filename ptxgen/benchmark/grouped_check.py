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
from ptxgen.grouped_exact import exact_crossings, shared_by_segment
from ptxgen.operands import Operands

CHECKED_GROUPS = 4
"""Groups of a problem whose results are compared bit for bit."""


def check(
    workload: GroupedWorkload, contender: Contender, config: Any, groups: int = CHECKED_GROUPS,
    exact: bool = True, ctas: int = 0,
) -> Check:  # fmt: skip
    """Reset every copy of D, replay once, and compare up to `groups` groups: the longest, the
    first, the last and the middle one. exact: bit for bit (ours), else within a tolerance (peers).
    ctas: of the launch; tells which tiles are shared along K.

    kgrouped: D is compared after one call on zeros; a replay adds as often as it calls each copy,
    so its sums are compared with that multiple.
    """
    problem = workload.problem
    workload.reset_d()
    contender.replay(0, 1)
    segments = problem.segments(workload.sizes)
    shared = shared_by_segment(problem, config, segments, ctas if exact else 0)
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
        inputs = Operands(*workload.group(segment))
        want = exact_crossings(problem, segment, inputs, shared[segment], rows, columns)
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

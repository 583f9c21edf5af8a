"""grouped_check: looks at the results of a grouped kernel before it is timed."""

from typing import Any

import numpy as np

from ptxgen.benchmark.check import SAMPLE, Check, sample_indices
from ptxgen.benchmark.grouped_workload import GroupedWorkload
from ptxgen.benchmark.method import Contender
from ptxgen.exact_model import exact_result
from ptxgen.operands import Operands

CHECKED_GROUPS = 4
"""Groups of a problem whose results are compared bit for bit."""


def check(
    workload: GroupedWorkload, contender: Contender, config: Any, groups: int = CHECKED_GROUPS
) -> Check:
    """Reset every copy of D, replay once, and compare up to `groups` groups bit for bit: the
    longest, the first, the last and the middle one.

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

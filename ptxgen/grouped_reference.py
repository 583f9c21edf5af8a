"""What a GroupedGemm should give, in float64, by numpy; and which rows belong to which group."""

from typing import Any

import numpy as np

from ptxgen.errors import ProblemError
from ptxgen.grouped_problem import GroupedGemm, Segment
from ptxgen.problem import SCALE_BLOCK

Array = np.ndarray[Any, Any]


def segments(problem: GroupedGemm, sizes: Array | None) -> list[Segment]:
    """As `GroupedGemm.segments`."""
    limit = problem.k if problem.mode == "kgrouped" else problem.m
    if problem.mode == "batched":
        return [Segment(g, 0, problem.m) for g in range(problem.groups) if problem.m]
    assert sizes is not None
    values = np.asarray(sizes).astype(np.int64)
    if problem.mode == "contiguous" and problem.index == "rows":
        return _runs(problem, values)
    if problem.mode == "masked":
        starts, ends = np.zeros(problem.groups, np.int64), values
    elif problem.mode == "contiguous" and problem.index == "ends":
        starts = -(-np.concatenate(([0], values[:-1])) // problem.alignment) * problem.alignment
        ends = values
    else:
        starts, ends = values[:-1], values[1:]
    starts, ends = (np.clip(x, 0, limit) for x in (starts, ends))
    if problem.mode == "kgrouped":
        _check_starts(problem, starts[ends > starts])
    return [
        Segment(group, int(start), int(end - start))
        for group, (start, end) in enumerate(zip(starts, ends, strict=True))
        if end > start
    ]


def _check_starts(problem: GroupedGemm, starts: Array) -> None:
    """Hold the parts of K to what the problem says of them.

    Raises: ProblemError.
    """
    wrong = starts[starts % problem.alignment != 0]
    if wrong.size:
        raise ProblemError(
            f"sizes: with alignment={problem.alignment} every group's part of K must start at a "
            f"multiple of it, got a start of {int(wrong[0])}; try zeros between the groups, or "
            "another alignment"
        )


def _runs(problem: GroupedGemm, values: Array) -> list[Segment]:
    """Runs of rows of one group."""
    edges = np.flatnonzero(np.diff(values)) + 1
    runs = [run for run in np.split(np.arange(problem.m), edges) if len(run)]
    return [
        Segment(int(values[run[0]]), int(run[0]), len(run))
        for run in runs
        if 0 <= values[run[0]] < problem.groups
    ]


def group_operands(
    problem: GroupedGemm, segment: Segment, a: Array, b: Array, scale_a: Any = None,
    scale_b: Any = None,
) -> tuple[Array, Array, Any, Any]:  # fmt: skip
    """A [rows,K], B [N,K] and scales of one segment, as those of `gemm(segment.length)`.

    a, b, scale_a, scale_b: arrays of a_shape, b_shape and scale_shape.
    """
    part = slice(segment.start, segment.start + segment.length)
    if problem.mode == "kgrouped":
        first = first_k_block(problem, segment)
        blocks = slice(first, first - (-segment.length // SCALE_BLOCK))
        of_a, of_b = (
            x[0][:, blocks] if problem.scale == "group" else None for x in (scale_a, scale_b)
        )
        return a[0][:, part], b[0][:, part], of_a, of_b
    matrix = segment.group if problem.a_groups > 1 else 0
    rows, weights = a[matrix][part], b[segment.group]
    if problem.scale == "none":
        return rows, weights, None, None
    if problem.scale == "tensor":
        return rows, weights, scale_a, scale_b[segment.group :][:1]
    return rows, weights, scale_a[matrix][part], scale_b[segment.group]


def first_k_block(problem: GroupedGemm, segment: Segment) -> int:
    """kgrouped: column of the scale matrices where a group's blocks of K start."""
    gap = segment.group if problem.has_block_gaps else 0
    return -(-segment.start // SCALE_BLOCK) + gap


def reference(
    problem: GroupedGemm, sizes: Array | None, a: Array, b: Array, scale_a: Any, scale_b: Any,
    c: Array | None,
) -> Array:  # fmt: skip
    """As `GroupedGemm.reference`."""
    if problem.mode == "kgrouped":
        d = np.zeros(problem.d_shape) if c is None else np.asarray(c).astype(np.float64)
    else:
        d = np.full(problem.d_shape, np.nan)
    for segment in segments(problem, sizes):
        operands = group_operands(problem, segment, a, b, scale_a, scale_b)
        result = problem.gemm(segment.length).reference(*operands)
        if problem.mode == "kgrouped":
            d[segment.group] += result
        else:
            matrix = segment.group if problem.a_groups > 1 else 0
            d[matrix, segment.start : segment.start + segment.length] = result
    return d

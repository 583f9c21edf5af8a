"""What a Gemm should give, in float64, by numpy."""

from typing import Any

import numpy as np

from ptxgen.epilogue_reference import values_of_d
from ptxgen.problem import BLOCK_SCALES, MICRO_SCALES, SCALE_BLOCK, Gemm

Array = np.ndarray[Any, Any]


def reference(
    problem: Gemm, a: Any, b: Any, scale_a: Any = None, scale_b: Any = None,
    c: Any = None, bias: Any = None,
) -> Array:  # fmt: skip
    """D before it is quantised to its dtype; arguments as `Gemm.reference`."""
    sums = _scaled_sums(problem, a, b, scale_a, scale_b)
    return values_of_d(problem.epilogue, sums, c, bias)


def _scaled_sums(problem: Gemm, a: Any, b: Any, scale_a: Any, scale_b: Any) -> Array:
    """alpha * scale_a * scale_b * A @ B, shape [M,N]."""
    a64 = np.asarray(a).astype(np.float64)
    b64 = np.asarray(b).astype(np.float64)
    a64 = a64 if problem.layout[0] == "n" else a64.T
    b64 = b64 if problem.layout[1] == "t" else b64.T
    if problem.scale in BLOCK_SCALES:
        return _by_blocks(problem, a64, b64, np.asarray(scale_a), np.asarray(scale_b))
    if problem.scale in MICRO_SCALES:
        a64 = a64 * micro_factors(problem, scale_a)
        b64 = b64 * micro_factors(problem, scale_b)
    result = a64 @ b64.T * problem.alpha
    if problem.scale == "tensor":
        factors = [float(np.asarray(s).reshape(())) for s in (scale_a, scale_b)]
        result = result * factors[0] * factors[1]
    if problem.scale == "rowcol":
        rows = np.asarray(scale_a).astype(np.float64).reshape(-1, 1)
        columns = np.asarray(scale_b).astype(np.float64).reshape(1, -1)
        result = result * rows * columns
    return np.asarray(result)


def micro_factors(problem: Gemm, scales: Any) -> Array:
    """Micro scales [rows, blocks] as float64, one for each element: [rows, K]."""
    size = MICRO_SCALES[problem.scale][0]
    return np.repeat(np.asarray(scales).astype(np.float64), size, axis=1)[:, : problem.k]


def _by_blocks(problem: Gemm, a64: Array, b64: Array, scale_a: Array, scale_b: Array) -> Array:
    """The same for block scales: a64 [M,K], b64 [N,K], one product per block of K."""
    result = np.zeros((problem.m, problem.n))
    columns_per_scale = SCALE_BLOCK if problem.scale == "block" else 1
    for block in range(problem.k_blocks):
        part = slice(block * SCALE_BLOCK, (block + 1) * SCALE_BLOCK)
        columns = np.repeat(scale_b[:, block].astype(np.float64), columns_per_scale)
        rows = scale_a[:, block].astype(np.float64)
        result += a64[:, part] @ b64[:, part].T * rows[:, None] * columns[None, : problem.n]
    return result * problem.alpha

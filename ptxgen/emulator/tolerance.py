"""How far a result may lie from exact arithmetic: worst-case bounds per element.

One fused sum of L products and an addend truncates L + 1 terms, each by less than 2^-F of the
largest term, and rounds its result once. Every term and every partial sum is at most the element's
magnitude sum |a| |b| + |c|, so a chain of n instructions errs by at most
n ((L + 1) 2^-F + u) magnitude, u the relative error of the rounding. Random data stays far below:
compare with a fraction of the bound, or bitwise with the exact model.
Source: the model of MMA-Sim, arXiv 2511.10909; derivation as above.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.numerics import FusedModel

F64 = NDArray[np.float64]

UNIT_ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "e4m3": 2.0**-4,
                 "e5m2": 2.0**-3}  # fmt: skip
"""Largest relative error of rounding to nearest, for normal numbers."""
_SMALLEST_STEP = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133, "e4m3": 2.0**-9,
                  "e5m2": 2.0**-16}  # fmt: skip
_OUTPUT_ROUNDOFF = {"f32": 2.0**-23, "e8m13": 2.0**-13, "f16": 2.0**-11}
_OUTPUT_STEP = {"f32": 2.0**-149, "e8m13": 2.0**-139, "f16": 2.0**-24}


def accumulation_bound(
    magnitude: NDArray[Any], k: int, model: FusedModel, *, promote_every: int = 0
) -> F64:
    """Worst error of a K-long sum on the tensor cores, per element of `magnitude`.

    `magnitude`: sum over k of |a| |b|, plus |c|. `promote_every`: K elements after which the
    partial sum is added to a float32 (to nearest) and the tensor core starts again from zero;
    0 = never.
    """
    size = np.abs(np.asarray(magnitude, np.float64))
    chain = min(promote_every or k, k)
    instructions = -(-chain // model.k_step)
    lost = (model.k_step + 1) * 2.0**-model.fraction_bits + _OUTPUT_ROUNDOFF[model.output]
    # partial sums exceed the magnitude by the error made so far
    relative = instructions * lost
    relative += relative * relative
    floor = (model.k_step + 1) * 2.0 ** (model.zero_exponent - model.fraction_bits)
    floor += _OUTPUT_STEP[model.output]
    intervals = -(-k // chain)
    bound = size * relative + intervals * instructions * floor
    if promote_every:
        added = intervals * UNIT_ROUNDOFF["f32"] * (1 + intervals * UNIT_ROUNDOFF["f32"])
        bound = bound + added * (size + bound) + intervals * _SMALLEST_STEP["f32"]
    return bound


def float32_sum_bound(magnitude: NDArray[Any], k: int) -> F64:
    """Worst error of K exact products added to nearest in float32 in any order: the fast mode.

    `magnitude` as for `accumulation_bound`.
    """
    relative = (k + 1) * UNIT_ROUNDOFF["f32"]
    return np.abs(np.asarray(magnitude, np.float64)) * (relative + 2 * relative * relative)


def rounded_bound(values: NDArray[Any], error: NDArray[Any] | float, d_type: str) -> F64:
    """Worst error after results within `error` of `values` were rounded to nearest in `d_type`."""
    reach = np.abs(np.asarray(values, np.float64)) + error
    step = np.maximum(reach * UNIT_ROUNDOFF[d_type], _SMALLEST_STEP[d_type] / 2)
    return np.asarray(error + step, np.float64)


def gemm_bound(
    values: NDArray[Any],
    magnitude: NDArray[Any],
    k: int,
    model: FusedModel,
    d_type: str,
    *,
    promote_every: int = 0,
) -> F64:
    """Worst error per element of D = A @ B rounded to `d_type`.

    `values`: exact results (float64); `magnitude`: |A| @ |B|, both of D's shape.
    """
    error = accumulation_bound(magnitude, k, model, promote_every=promote_every)
    return rounded_bound(values, error, d_type)

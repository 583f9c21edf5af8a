"""Rounding of float64 to a smaller IEEE format, in every direction and with a known error."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def round_to(
    values: Any, error: Any, fraction: int, exponent: int, rounding: str
) -> NDArray[np.uint32]:
    """Bit patterns of `values` + a tiny `error`, rounded once: rn, rz, rm, rp.

    The error is smaller than half a unit of float64 and only its sign matters. Overflow gives
    infinity, or the largest number where the direction forbids it; NaN is canonical.
    """
    x = np.asarray(values, np.float64)
    magnitude = np.abs(x)
    sign = np.signbit(x)
    bias = (1 << (exponent - 1)) - 1
    lowest = 1 - bias
    _, e = np.frexp(np.where(np.isfinite(magnitude), magnitude, 0.0))
    e = np.maximum(e - 1, lowest)
    scaled = np.ldexp(np.where(np.isfinite(magnitude), magnitude, 0.0), fraction - e)
    whole = np.floor(scaled)
    rest = scaled - whole
    outward = np.where(sign, -np.asarray(error), np.asarray(error)) * np.ones_like(x)
    back = (rest == 0) & (outward < 0)
    # just below a power of two the steps are half as wide
    narrow = back & (whole == float(1 << fraction)) & (e > lowest)
    e = np.where(narrow, e - 1, e)
    whole = np.where(narrow, 2 * whole - 1, np.where(back, whole - 1, whole))
    rest = np.where(back, 1.0, rest)
    inexact = (rest > 0) | (outward > 0)
    if rounding == "rn":
        tie = rest == 0.5
        up = (rest > 0.5) & ~back | back
        up = up | (tie & ((outward > 0) | ((outward == 0) & (whole % 2 == 1))))
    elif rounding == "rz":
        up = np.zeros(x.shape, bool)
    elif rounding == "rp":
        up = inexact & ~sign
    else:
        up = inexact & sign
    whole = whole + up
    grown = whole >= float(1 << (fraction + 1))
    whole = np.where(grown, whole / 2, whole)
    e = np.where(grown, e + 1, e)
    normal = whole >= float(1 << fraction)
    found = np.where(
        normal,
        ((e + bias).astype(np.int64) << fraction) + (whole.astype(np.int64) - (1 << fraction)),
        whole.astype(np.int64),
    )
    infinity = ((1 << exponent) - 1) << fraction
    too_big = (e > bias) & normal
    inward = {
        "rn": np.zeros(x.shape, bool), "rz": np.ones(x.shape, bool), "rp": sign, "rm": ~sign,
    }[rounding]  # fmt: skip
    found = np.where(too_big, np.where(inward, infinity - 1, infinity), found)
    found = np.where(np.isinf(x), infinity, found)
    found = found | (sign.astype(np.int64) << (fraction + exponent))
    nan = (1 << (fraction + exponent)) - 1
    found = np.where(np.isnan(x), nan, found)
    patterns: NDArray[np.uint32] = found.astype(np.uint32)
    return patterns

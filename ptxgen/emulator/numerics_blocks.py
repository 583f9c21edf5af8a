"""Block-scaled four-bit products: kinds mxf4 and mxf4nvf4.

Groups of 16 products are summed exactly, multiplied by their two scales, aligned to the largest
scale exponent (or the addend's), truncated to 35 fraction bits, added, and truncated to float32.
Source: MMA-Sim's GST-FDPA (arXiv 2511.10909); not measured by us, no Blackwell at hand.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.numerics import CANONICAL_NAN, exponents, power_of_two, round_sum
from ptxgen.emulator.products import product

F32 = NDArray[np.float32]

GROUP = 16
FRACTION_BITS = 35
_ZERO_EXPONENT = -139


def block_scaled_dot(a: F32, b: F32, c: F32, scale_a: F32, scale_b: F32, scale_type: str) -> F32:
    """D = sum over blocks of scale_a scale_b (A_block @ B_block.T) + C, as values.

    A (M, K) and B (N, K) hold e2m1 values, `scale_a` (M, blocks) and `scale_b` (N, blocks) the
    values of ue8m0 or ue4m3 codes; K / blocks is 16 or 32.
    """
    lowest = -127 if scale_type == "ue8m0" else -6
    groups = a.shape[1] // GROUP
    per_block = groups // scale_a.shape[1]
    nan_rows, nan_columns = (np.asarray(np.isnan(s).any(axis=1)) for s in (scale_a, scale_b))
    nan = np.isnan(c) | nan_rows[:, None] | nan_columns[None, :]
    infinite = np.isinf(c) & ~nan
    addend = np.where(np.isfinite(c), c, np.float32(0))
    left, right = (_significands(s, lowest) for s in (scale_a, scale_b))
    terms, places = [], []
    for group in range(groups):
        k, block = slice(group * GROUP, (group + 1) * GROUP), group // per_block
        # multiples of 1/4 below 2^10: exact in float32 in any order
        products = product(a[:, k], b[:, k])
        any_product = product(np.abs(a[:, k]), np.abs(b[:, k]))
        significand = np.multiply.outer(left[0][:, block], right[0][:, block])
        place = np.add.outer(left[1][:, block], right[1][:, block])
        place[(any_product == 0) | (significand == 0)] = _ZERO_EXPONENT
        terms.append(products * significand)
        places.append(place)
    top = np.maximum(exponents(addend, -126), _ZERO_EXPONENT).astype(np.int64)
    top = np.maximum(top, np.maximum.reduce(places))
    total = np.trunc(addend * power_of_two(FRACTION_BITS - top))
    for term, place in zip(terms, places, strict=True):
        total += np.trunc(term * power_of_two(place - top + FRACTION_BITS))
    d = round_sum(total * power_of_two(top - FRACTION_BITS), "f32")
    d[infinite] = c[infinite]
    d[nan] = CANONICAL_NAN
    return d


def _significands(scales: F32, lowest: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """(significand as float64, exponent) of scales; subnormals share `lowest`."""
    finite = np.where(np.isfinite(scales), scales, np.float32(0)).astype(np.float64)
    place = np.maximum(np.frexp(finite)[1].astype(np.int64) - 1, lowest)
    return finite * power_of_two(-place), place

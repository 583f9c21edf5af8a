"""Worst-case bounds: never exceeded by the exact model, and nearly reached by bad data."""

from typing import Any

import numpy as np
import pytest

from ptxgen.emulator.formats import decode, encode
from ptxgen.emulator.numerics import FusedModel, fused_dot, fused_model
from ptxgen.emulator.tolerance import (
    accumulation_bound,
    float32_sum_bound,
    gemm_bound,
    rounded_bound,
)

RNG = np.random.default_rng(17)


def data(a_type: str, rows: int, k: int, spread: int) -> Any:
    values = RNG.standard_normal((rows, k)) * 2.0 ** RNG.integers(-spread, spread + 1, (rows, k))
    codes = encode(a_type, values, saturate=True)
    return decode(a_type, codes.astype(np.uint8 if a_type[0] == "e" else np.uint16))


def promoted(a: Any, b: Any, model: FusedModel, a_type: str, interval: int) -> Any:
    total = np.zeros((len(a), len(b)), np.float32)
    for k in range(0, a.shape[1], interval):
        part = slice(k, k + interval)
        zero = np.zeros_like(total)
        total = total + fused_dot(a[:, part], b[:, part], zero, model, a_type, a_type)
    return total


@pytest.mark.parametrize("spread", [0, 6])
@pytest.mark.parametrize(
    ("unit", "a_type", "d_type"),
    [("wgmma", "e4m3", "f32"), ("wgmma", "e5m2", "f16"), ("wgmma", "bf16", "f32"),
     ("tcgen05", "e4m3", "f32")],
)  # fmt: skip
@pytest.mark.parametrize("promote_every", [0, 128])
def test_exact_model_stays_within_the_bound(
    unit: str, a_type: str, d_type: str, spread: int, promote_every: int
) -> None:
    a, b = data(a_type, 16, 1024, spread), data(a_type, 24, 1024, spread)
    model = fused_model(unit, a_type, d_type)
    if promote_every:
        got = promoted(a, b, model, a_type, promote_every)
    else:
        got = fused_dot(a, b, np.zeros((16, 24), np.float32), model, a_type, a_type)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(got)
    error = np.abs(np.where(finite, got, 0) - wide_a @ wide_b.T)
    bound = accumulation_bound(
        np.abs(wide_a) @ np.abs(wide_b).T, 1024, model, promote_every=promote_every
    )
    assert (error <= bound)[finite].all()


def test_one_instruction_can_nearly_reach_the_bound() -> None:
    model = fused_model("wgmma", "e5m2", "f32")
    a = np.ones((1, 32), np.float32)
    b = np.full((1, 32), 1.75 * 2.0**-14, np.float32)
    b[0, 0] = 1
    got = fused_dot(a, b, np.zeros((1, 1), np.float32), model, "e5m2", "e5m2")
    exact = float(b.sum(dtype=np.float64))
    bound = accumulation_bound(np.array([[exact]]), 32, model)[0, 0]
    assert 0.75 * bound < exact - got[0, 0] <= bound


def test_promotion_shrinks_the_bound_of_a_long_sum() -> None:
    model = fused_model("wgmma", "e4m3", "f32")
    fast = accumulation_bound(np.ones(1), 8192, model)[0]
    slow = accumulation_bound(np.ones(1), 8192, model, promote_every=128)[0]
    assert fast > 40 * slow


@pytest.mark.parametrize("d_type", ["bf16", "f16", "e4m3", "e5m2", "f32"])
def test_rounding_stays_within_its_bound(d_type: str) -> None:
    values = RNG.standard_normal(2000) * 2.0 ** RNG.integers(-12, 8, 2000)
    if d_type == "f32":
        rounded = values.astype(np.float32)
    else:
        codes = encode(d_type, values)
        rounded = decode(d_type, codes.astype(np.uint8 if d_type[0] == "e" else np.uint16))
    bound = rounded_bound(values, 0.0, d_type)
    within = np.abs(values) < 400
    assert (np.abs(rounded - values) <= bound)[within].all()
    assert (np.abs(rounded - values) > bound / 2)[within].any()


def test_gemm_bound_adds_the_rounding_of_the_result() -> None:
    model = FusedModel(25, "f32", 16)
    bound = gemm_bound(np.array([1.0]), np.array([1.0]), 16, model, "bf16")
    assert 2.0**-8 < bound[0] < 1.01 * 2.0**-8


def test_float32_sums_stay_within_their_bound() -> None:
    a, b = data("bf16", 32, 4096, 4), data("bf16", 32, 4096, 4)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(a @ b.T - wide_a @ wide_b.T)
    bound = float32_sum_bound(np.abs(wide_a) @ np.abs(wide_b).T, 4096)
    assert (error <= bound).all()
    ones = np.full(4097, 2.0**-24, np.float32)
    ones[0] = 1
    in_order = np.add.accumulate(ones)[-1]
    exact = 1 + 4096 * 2.0**-24
    bound = float32_sum_bound(np.array([exact]), 4096)[0]
    assert 0.9 * bound < exact - in_order <= bound

"""Quantisation on the host: finite scales, errors within half a step, refusals by our own error."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxgen.errors import ArgumentError
from ptxgen.quantize import quantize_blocks, quantize_rows, quantize_tensor

Quantise = Callable[[Any, str], tuple[Any, Any]]
BY_ROWS_OR_BLOCKS = [quantize_rows, quantize_blocks]
ALL = [quantize_tensor, *BY_ROWS_OR_BLOCKS]


@pytest.mark.parametrize("quantise", ALL)
@pytest.mark.parametrize("amax", [0.0, 1e-45, 1e-42, 1e-320])
def test_a_zero_or_tiny_block_gets_a_finite_scale_that_is_not_zero(
    quantise: Quantise, amax: float
) -> None:
    q, scale = quantise(np.full((3, 200), amax), "e4m3")
    assert np.isfinite(scale).all()
    assert (scale > 0).all()
    assert not np.isnan(q.astype(np.float32)).any()


def test_an_error_is_at_most_half_a_step_of_e4m3() -> None:
    x = np.random.default_rng(0).standard_normal((5, 300))
    q, scale = quantize_rows(x, "e4m3")
    step = np.maximum(np.abs(x) * 2.0**-3, scale[:, None] * 2.0**-9)
    assert (np.abs(q.astype(np.float64) * scale[:, None] - x) <= step / 2).all()


@pytest.mark.parametrize("quantise", ALL)
@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "NaN or inf"), (np.inf, "NaN or inf"), (1e300, "try smaller")]
)
def test_what_no_scale_holds_is_refused(quantise: Quantise, value: float, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        quantise(np.full((3, 200), value), "e4m3")


@pytest.mark.parametrize("quantise", ALL)
@pytest.mark.parametrize("x", [[["a"]], [[1, 2], [3]], [[1j]], [[None]]], ids=str)
def test_only_real_numbers_are_quantised(quantise: Quantise, x: Any) -> None:
    with pytest.raises(ArgumentError, match=r"quantisation needs .*; try"):
        quantise(x, "e4m3")


@pytest.mark.parametrize("fields", [(0,), (1.5,), ((1, 128),), (1, -1), (1, 128, "f16")], ids=str)
def test_blocks_have_a_size_and_scales_a_format(fields: tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError, match="; try"):
        quantize_blocks(np.ones((3, 200)), "e4m3", *fields)


@pytest.mark.parametrize("quantise", BY_ROWS_OR_BLOCKS)
@pytest.mark.parametrize("shape", [(7,), (2, 3, 4)])
def test_only_matrices_have_rows_and_blocks(quantise: Quantise, shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match=r"needs \[rows, k\]"):
        quantise(np.ones(shape), "e4m3")

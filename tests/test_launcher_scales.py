"""Block scales of UE8M0 exponents in gemm: bytes, or four to a word as DeepGEMM packs them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxgen.errors import ArgumentError
from ptxgen.launcher import gemm
from ptxgen.quantize import quantize_blocks

M, N, K = 40, 264, 1152
Form = Callable[[Any], Any]


@pytest.fixture(params=["emulator", pytest.param(0, marks=pytest.mark.gpu)])
def where(request: pytest.FixtureRequest) -> Any:
    """What `gemm(device=)` takes."""
    return request.param


def operands(rows_per_scale: int = 128) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((M, K)), rng.standard_normal((N, K))
    a, scale_a = quantize_blocks(x, "e4m3", scale_name="ue8m0")
    b, scale_b = quantize_blocks(w, "e4m3", rows_per_scale, scale_name="ue8m0")
    return a, b, scale_a, scale_b


def same(scale: Any) -> Any:
    return scale


def exponents(scale: Any) -> Any:
    return scale.view(np.uint8)


def packed(scale: Any) -> Any:
    """[rows, ceil(blocks / 4)] of int32, rows contiguous in memory."""
    padded = np.pad(scale.view(np.uint8), ((0, 0), (0, -scale.shape[1] % 4)))
    return np.asfortranarray(np.ascontiguousarray(padded).view(np.int32))


def cut(scale: Any) -> Any:
    return exponents(scale)[:, :5]


def doubles(scale: Any) -> Any:
    return scale.astype(np.float64)


def first(scale: Any) -> Any:
    return scale[:1, :1]


@pytest.mark.parametrize("rows_per_scale", [128, 1])
def test_exponents_give_the_bits_of_float32_scales(where: Any, rows_per_scale: int) -> None:
    a, b, scale_a, scale_b = operands(rows_per_scale)
    single = [s.astype(np.float32) for s in (scale_a, scale_b)]
    want = gemm(a, b, scale_a=single[0], scale_b=single[1], device=where)
    for form in (same, exponents, packed):
        got = gemm(a, b, scale_a=form(scale_a), scale_b=form(scale_b), device=where)
        assert np.array_equal(got.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize(
    ("form_a", "form_b", "message"),
    [
        (packed, exponents, "of one format"),
        (cut, exponents, "fit no kind"),
        (doubles, doubles, "dtype must be f32"),
        (first, first, "exponents are taken for"),
    ],
)
def test_exponents_that_do_not_fit_are_refused(form_a: Form, form_b: Form, message: str) -> None:
    a, b, scale_a, scale_b = operands()
    with pytest.raises(ArgumentError, match=message):
        gemm(a, b, scale_a=form_a(scale_a), scale_b=form_b(scale_b), device="emulator")

"""The epilogue's arguments of gemm: what they compute, and what they refuse."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxgen.errors import ArgumentError, ConfigError
from ptxgen.kernels import gemm_mma, gemm_sm90
from ptxgen.launcher import gemm
from ptxgen.problem import Gemm
from ptxgen.quantize import interleave_halves, quantize_blocks

M, N, K = 40, 256, 64


@pytest.fixture(params=["emulator", pytest.param(0, marks=pytest.mark.gpu)])
def where(request: pytest.FixtureRequest) -> Any:
    """What `gemm(device=)` takes."""
    return request.param


def integers(*shape: int, kind: Any = ml_dtypes.bfloat16, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(kind)


A, B = integers(M, K), integers(N, K, seed=1)
SUMS = A.astype(np.float32) @ B.astype(np.float32).T


@pytest.mark.parametrize("shape", [(1,), ()])
def test_c_bias_and_amax(where: Any, shape: tuple[int, ...]) -> None:
    c, bias = integers(M, N, kind=np.float32, seed=2), integers(M, 1, kind=np.float16, seed=3)
    amax = np.zeros(shape, np.float32)
    d = gemm(A, B, d_dtype="f32", alpha=2.0, c=c, beta=-0.5, bias=bias, amax=amax, device=where)
    want = 2 * SUMS - 0.5 * c + bias.astype(np.float32)
    assert np.array_equal(d, want)
    assert amax.item() == np.abs(want).max()


def test_c_may_be_out(where: Any) -> None:
    out = integers(M, N, kind=np.float32, seed=2)
    want = SUMS + out
    assert gemm(A, B, c=out, out=out, device=where) is out
    assert np.array_equal(out, want)


def test_beta_zero_reads_no_c(where: Any) -> None:
    c = np.full((M, N), np.nan, np.float32)
    assert np.array_equal(gemm(A, B, d_dtype="f32", c=c, beta=0.0, device=where), SUMS)


def test_scales_of_d_are_those_of_the_host(where: Any) -> None:
    scales = np.empty((2, M), np.float32).T
    d = gemm(A, B, d_dtype="e4m3", d_scales=scales, device=where)
    q, wanted = quantize_blocks(SUMS, "e4m3")
    assert np.array_equal(scales, wanted)
    assert np.mean(d.view(np.uint8) == q.view(np.uint8)) > 0.99  # the host divides by the scale


def test_swiglu_of_interleaved_halves(where: Any) -> None:
    gates, values = B[: N // 2], B[N // 2 :]
    d = gemm(A, interleave_halves(gates, values), d_dtype="f32", activation="swiglu", device=where)
    g, u = SUMS[:, : N // 2].astype(np.float64), SUMS[:, N // 2 :]
    assert d.shape == (M, N // 2)
    assert np.allclose(d, g / (1 + np.exp(-g)) * u, rtol=2e-5, atol=1e-30)


ONE = np.ones(1, np.float32)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"beta": 2.0}, "try c="),
    ({"c": np.zeros((N, M), np.float32)}, "c: shape must be"),
    ({"c": np.zeros((M, N), np.float64)}, "c: dtype must be"),
    ({"bias": np.zeros(M, np.float32)}, "bias: shape must be"),
    ({"bias": np.zeros(2 * N, np.float32)[::2]}, "bias: must be contiguous"),
    ({"amax": np.zeros(2, np.float32)}, "amax: must be an array of one float32"),
    ({"d_scale": ONE, "d_dtype": "bf16"}, "needs an 8-bit d"),
    ({"d_scale": ONE, "d_scales": ONE}, "one of them"),
    ({"d_scales": np.zeros((2, M), np.float32), "d_dtype": "e4m3"}, "try d_scales.T"),
    ({"activation": "relu"}, "must be one of none, gelu"),
    ({"activation": "swiglu", "c": np.zeros((M, N), np.float32)}, "try without C"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        gemm(A, B, device="emulator", **arguments)


def test_an_output_that_overlaps_c_is_refused() -> None:
    room = np.zeros((M + 1, N), np.float32)
    with pytest.raises(ArgumentError, match="out overlaps c"):
        gemm(A, B, c=room[:M], out=room[1:], device="emulator")


@pytest.mark.parametrize("m", [1, 63, 64, 65, 130])
def test_batch_invariant_rows_have_the_bits_of_any_m(where: Any, m: int) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((r, 528)).astype(ml_dtypes.float8_e4m3fn) for r in (300, 72))
    whole = gemm(a, b, batch_invariant=True, device=where)
    part = gemm(a[:m], b, batch_invariant=True, device=where)
    assert np.array_equal(part.view(np.uint16), whole[:m].view(np.uint16))


def test_batch_invariant_rows_of_an_a_stored_by_columns_have_the_bits_of_any_m(where: Any) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((528, r)).astype(ml_dtypes.bfloat16) for r in (304, 72))
    options = {"layout": "tn", "batch_invariant": True, "device": where}
    whole, dense, view = (gemm(x, b, **options) for x in (a, a[:, :8].copy(), a[:, :8]))
    assert np.array_equal(dense.view(np.uint16), whole[:8].view(np.uint16))
    assert np.array_equal(view.view(np.uint16), whole[:8].view(np.uint16))


def test_of_two_ctas_on_an_sm_one_is_left_for_a_dependent_launch_unless_the_caller_asked_for_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = gemm_sm90.default_config(Gemm(M, N, K), tile_m=64, tile_n=64, ctas_per_sm=2)
    monkeypatch.setattr("ptxgen.emission.default_config", lambda *_: shared)
    d = gemm(A, B, dependent_launch=True, device="emulator")
    assert np.array_equal(d.view(np.uint16), gemm(A, B, device="emulator").view(np.uint16))
    with pytest.raises(ConfigError, match="ctas_per_sm=2 needs"):
        gemm(A, B, config=shared, dependent_launch=True, device="emulator")


def test_kernels_without_dependent_launch_say_so() -> None:
    config = gemm_mma.default_config(Gemm(M, N, K), target="sm_90a")
    with pytest.raises(ConfigError, match="dependent_launch"):
        gemm(A, B, config=config, dependent_launch=True, device="emulator")

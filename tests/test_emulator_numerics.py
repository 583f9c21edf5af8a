"""The exact tensor-core model against rational arithmetic, and against mmasim where installed."""

from fractions import Fraction
from math import floor, isfinite, isnan, log2
from typing import Any

import numpy as np
import pytest

from ptxgen.emulator.formats import FORMATS, decode, encode
from ptxgen.emulator.numerics import (
    FusedModel,
    fused_dot,
    fused_model,
    min_exponent,
    mma_sync_fp8_sm90,
)

RNG = np.random.default_rng(11)
CODE = {"e4m3": np.uint8, "e5m2": np.uint8, "bf16": np.uint16, "f16": np.uint16, "tf32": np.uint32}
WGMMA_TYPES = [
    ("e4m3", "e4m3", "f32"), ("e5m2", "e5m2", "f32"), ("e4m3", "e5m2", "f32"),
    ("e5m2", "e4m3", "f16"), ("e4m3", "e4m3", "f16"), ("bf16", "bf16", "f32"),
    ("f16", "f16", "f32"), ("f16", "f16", "f16"), ("tf32", "tf32", "f32"),
]  # fmt: skip
DATA = ["normal", "any bits", "wide", "cancelling", "tiny"]


def operands(
    kind: str, a_type: str, b_type: str, d_type: str, rows: int, columns: int, depth: int
) -> tuple[Any, Any, Any]:
    """Codes of A (rows, depth) and B (columns, depth), and float32 C."""

    def codes(name: str, shape: tuple[int, int]) -> Any:
        if kind == "any bits":
            return RNG.integers(0, 1 << 8 * np.dtype(CODE[name]).itemsize, shape, CODE[name])
        spread = {"wide": 18, "tiny": 3}.get(kind, 0)
        low = FORMATS[name].min_exponent if kind == "tiny" else 0
        values = RNG.standard_normal(shape) * 2.0 ** (
            low + RNG.integers(-spread, spread + 1, shape)
        )
        if name == "tf32":
            return values.astype(np.float32).view(np.uint32)
        return encode(name, values, saturate=True).astype(CODE[name])

    a, b = codes(a_type, (rows, depth)), codes(b_type, (columns, depth))
    c = RNG.standard_normal((rows, columns))
    if kind == "any bits":
        c = RNG.integers(0, 1 << 32, (rows, columns), np.uint32).view(np.float32)
    elif kind == "wide":
        c = c * 2.0 ** RNG.integers(-40, 40, c.shape)
    elif kind == "tiny":
        c = c * 2.0 ** RNG.integers(-140, -120, c.shape)
    elif kind == "cancelling":
        product = decode(a_type, a).astype(np.float64) @ decode(b_type, b).T.astype(np.float64)
        c = -product * (1 + RNG.integers(-2, 3, c.shape) * 2.0**-14)
    with np.errstate(over="ignore", invalid="ignore"):
        c = np.asarray(c, np.float32)
        return a, b, c.astype(np.float16).astype(np.float32) if d_type == "f16" else c


def exponent_of(x: Fraction, low: int) -> int:
    """Exponent of a nonzero rational, subnormals at `low`."""
    x = abs(x)
    guess = floor(log2(x)) if x else low
    while Fraction(2) ** (guess + 1) <= x:
        guess += 1
    while Fraction(2) ** guess > x:
        guess -= 1
    return max(guess, low)


def rational_fused_sum(
    a: Any, b: Any, c: float, model: FusedModel, a_type: str, b_type: str
) -> Any:
    """One output of MMA-Sim's model (arXiv 2511.10909), in exact arithmetic."""
    floor_exponent = -21 if model.output == "f16" else -133
    addend_low = -14 if model.output == "f16" else -126
    terms = []
    for x, y in zip(map(Fraction, a.tolist()), map(Fraction, b.tolist()), strict=True):
        if x and y:
            exponent = exponent_of(x, min_exponent(a_type)) + exponent_of(y, min_exponent(b_type))
            terms.append((x * y, exponent))
    if c:
        terms.append((Fraction(float(c)), exponent_of(Fraction(float(c)), addend_low)))
    top = max([floor_exponent, *(exponent for _, exponent in terms)])
    unit = Fraction(2) ** (top - model.fraction_bits)
    total = sum(int(term / unit) for term, _ in terms) * unit
    if model.output == "f16":
        with np.errstate(over="ignore"):
            return np.float32(np.float16(float(total))) + np.float32(0)
    kept = 13 if model.output == "e8m13" else 23
    step = Fraction(2) ** (exponent_of(total, -126) - kept) if total else Fraction(1)
    rounded = int(total / step) * step
    return np.float32(float(rounded)) if abs(rounded) < 2**128 else np.float32(np.inf)


@pytest.mark.parametrize(("a_type", "b_type", "d_type"), WGMMA_TYPES)
@pytest.mark.parametrize("kind", ["normal", "wide", "cancelling", "tiny"])
def test_fused_sum_equals_rational_arithmetic(
    a_type: str, b_type: str, d_type: str, kind: str
) -> None:
    depth = 32 // np.dtype(CODE[a_type]).itemsize
    codes_a, codes_b, c = operands(kind, a_type, b_type, d_type, 4, 5, depth)
    a, b = decode(a_type, codes_a), decode(b_type, codes_b)
    model = fused_model("wgmma", a_type, d_type)
    got = fused_dot(a, b, c, model, a_type, b_type)
    for i in range(4):
        for j in range(5):
            if isfinite(c[i, j]):
                wanted = rational_fused_sum(a[i], b[j], c[i, j], model, a_type, b_type)
                assert got[i, j].view(np.uint32) == wanted.view(np.uint32)


@pytest.mark.parametrize(("a_type", "b_type", "d_type"), WGMMA_TYPES)
@pytest.mark.parametrize("kind", DATA)
def test_wgmma_equals_mmasim_bitwise(a_type: str, b_type: str, d_type: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    nv_ptx = pytest.importorskip("mmasim.nv_ptx")
    names = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "bf16": "bfloat16",
             "f16": "float16", "tf32": "float32"}  # fmt: skip
    depth = 32 // np.dtype(CODE[a_type]).itemsize
    codes_a, codes_b, c = operands(kind, a_type, b_type, d_type, 64, 64, depth)
    reference = nv_ptx.WGMMA("Hopper", f"m64n64k{depth}.{d_type}.{a_type}.{b_type}")
    tensors = [
        torch.from_numpy(codes).view(getattr(torch, names[name]))
        for codes, name in ((codes_a, a_type), (codes_b, b_type))
    ]
    addend = torch.from_numpy(c.astype(np.float16) if d_type == "f16" else c)
    wanted = reference(tensors[0], tensors[1].T, addend).float().numpy()
    got = fused_dot(
        decode(a_type, codes_a), decode(b_type, codes_b), c,
        fused_model("wgmma", a_type, d_type), a_type, b_type,
    )  # fmt: skip
    same = wanted.view(np.uint32) == got.view(np.uint32)
    if d_type == "f16":
        same |= np.isnan(wanted) & np.isnan(got)
    assert same.all()


@pytest.mark.parametrize(
    ("a", "b", "c", "wanted"),
    [
        ([np.inf, 1], [0, 1], 0, np.nan),
        ([np.inf, 1], [2, 1], 0, np.inf),
        ([np.inf, 1], [-2, 1], 0, -np.inf),
        ([np.inf, np.inf], [1, -1], 0, np.nan),
        ([1, 1], [1, 1], -np.inf, -np.inf),
        ([np.inf, 1], [1, 1], -np.inf, np.nan),
        ([np.nan, 1], [1, 1], 0, np.nan),
        ([1, 1], [1, 1], np.nan, np.nan),
        ([-0.0, 0], [1, 1], -0.0, 0.0),
    ],
)
def test_special_values_follow_ieee_with_one_nan_and_no_minus_zero(
    a: list[float], b: list[int], c: float, wanted: float
) -> None:
    got = fused_dot(
        np.array([a], np.float32), np.array([b], np.float32), np.array([[c]], np.float32),
        FusedModel(25, "f32"), "bf16", "bf16",
    )[0, 0]  # fmt: skip
    if isnan(wanted):
        assert got.view(np.uint32) == 0x7FFFFFFF
    else:
        assert got.view(np.uint32) == np.float32(wanted).view(np.uint32)


def test_fp8_wgmma_keeps_13_bits_below_the_largest_term() -> None:
    a = np.array([[1.0, 1.0]], np.float32)
    c = np.zeros((1, 1), np.float32)
    model = fused_model("wgmma", "e5m2", "f32")
    kept = fused_dot(a, np.array([[1.0, 2.0**-13]], np.float32), c, model, "e5m2", "e5m2")
    lost = fused_dot(a, np.array([[1.0, 2.0**-14]], np.float32), c, model, "e5m2", "e5m2")
    assert kept[0, 0] == 1 + 2.0**-13
    assert lost[0, 0] == 1


def test_mma_sync_fp8_on_sm90_chains_two_f16_steps() -> None:
    """The order read off the SASS: k % 4 < 2 first, then the rest, then C in float32."""
    codes_a, codes_b, c = operands("normal", "e4m3", "e4m3", "f32", 16, 8, 32)
    a, b = decode("e4m3", codes_a), decode("e4m3", codes_b)
    model = FusedModel(25, "f32")
    got = mma_sync_fp8_sm90(a, b, c)
    for i in range(16):
        for j in range(8):
            first = [k for k in range(32) if k % 4 < 2]
            second = [k for k in range(32) if k % 4 >= 2]
            part = rational_fused_sum(a[i, first], b[j, first], 0, model, "f16", "f16")
            part = rational_fused_sum(a[i, second], b[j, second], part, model, "f16", "f16")
            assert got[i, j] == np.float32(part + c[i, j])


def test_long_k_chains_instructions_in_order() -> None:
    codes_a, codes_b, c = operands("normal", "e4m3", "e4m3", "f32", 8, 8, 128)
    a, b = decode("e4m3", codes_a), decode("e4m3", codes_b)
    model = fused_model("wgmma", "e4m3", "f32")
    wanted = c
    for k in range(0, 128, 32):
        step_a, step_b = a[:, k : k + 32], b[:, k : k + 32]
        wanted = fused_dot(step_a, step_b, wanted, model, "e4m3", "e4m3")
    assert np.array_equal(fused_dot(a, b, c, model, "e4m3", "e4m3"), wanted)

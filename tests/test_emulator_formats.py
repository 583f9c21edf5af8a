"""Number formats against ml_dtypes, and cvt's rules that ml_dtypes does not have."""

import ml_dtypes
import numpy as np
import pytest

from ptxgen.emulator.formats import (
    FORMATS,
    bf16_to_f32,
    decode,
    decode_table,
    encode,
    f32_to_bf16,
    f32_to_f16,
    round_tf32,
    unpack_codes,
)

RNG = np.random.default_rng(3)
ML_NAMES = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn, "ue8m0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip


@pytest.mark.parametrize("name", ML_NAMES)
def test_every_code_decodes_as_ml_dtypes_does(name: str) -> None:
    bits = 8 if name == "ue8m0" else FORMATS[name].sign_bit.bit_length()
    codes = np.arange(1 << bits, dtype=np.uint8)
    wanted = codes.view(ML_NAMES[name]).astype(np.float32)
    assert np.array_equal(decode_table(name)[: 1 << bits], wanted, equal_nan=True)


@pytest.mark.parametrize("name", [n for n in ML_NAMES if n != "ue8m0"])
def test_every_code_survives_decoding_and_encoding(name: str) -> None:
    codes = np.arange(FORMATS[name].sign_bit * 2)
    values = decode_table(name)[codes]
    kept = codes[~np.isnan(values)]
    assert np.array_equal(encode(name, values[kept]), kept)


@pytest.mark.parametrize("name", [n for n in ML_NAMES if n != "ue8m0"])
def test_rounding_to_nearest_even_equals_ml_dtypes(name: str) -> None:
    top = decode_table(name)[FORMATS[name].max_code]
    values = np.concatenate(
        [RNG.uniform(-top, top, 4000), top * 2.0 ** RNG.uniform(-20, 0, 4000)]
    ).astype(np.float32)
    middle = np.sort(decode_table(name)[: FORMATS[name].max_code + 1].astype(np.float64))
    values = np.concatenate([values, ((middle[1:] + middle[:-1]) / 2).astype(np.float32)])
    wanted = values.astype(ML_NAMES[name]).view(np.uint8)
    assert np.array_equal(encode(name, values), wanted)


@pytest.mark.parametrize(
    ("name", "saturate", "value", "code"),
    [
        ("e4m3", True, 1e9, 0x7E), ("e4m3", True, -np.inf, 0xFE), ("e4m3", False, 1e9, 0x7F),
        ("e4m3", True, np.nan, 0x7F), ("e5m2", True, np.inf, 0x7B), ("e5m2", False, 1e9, 0x7C),
        ("e2m1", True, np.nan, 0x07), ("e2m1", True, -9.0, 0x0F), ("e2m3", True, np.nan, 0x1F),
        ("e4m3", True, 448 + 15, 0x7E), ("e4m3", False, 448 + 33, 0x7F),
    ],
)  # fmt: skip
def test_overflow_and_nan_follow_cvt(name: str, saturate: bool, value: float, code: int) -> None:
    assert encode(name, np.array([value]), saturate=saturate)[0] == code


def test_relu_clears_negative_values_only() -> None:
    assert encode("e4m3", np.array([-1.0, -0.0, 1.0]), relu=True).tolist() == [0, 0, 0x38]


@pytest.mark.parametrize(
    ("rounding", "value", "exponent"), [("rz", 3.9, 1), ("rp", 2.1, 2), ("rp", 2.0, 1)]
)
def test_scale_exponents_round_down_or_up(rounding: str, value: float, exponent: int) -> None:
    assert encode("ue8m0", np.array([value]), rounding=rounding)[0] == 127 + exponent


def test_stochastic_rounding_is_between_its_neighbours_and_follows_its_bits() -> None:
    value = np.full(2, 1.0625)
    codes = encode("e4m3", value, rounding="rs", random=np.array([0, 2**32 - 1]))
    assert decode_table("e4m3")[codes].tolist() == [1.0, 1.125]


def test_bf16_and_f16_round_as_ieee_does_for_any_bits() -> None:
    values = RNG.integers(0, 1 << 32, 20000, np.uint32).view(np.float32)
    number = ~np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore"):
        bf16 = values.astype(ml_dtypes.bfloat16).view(np.uint16)
        f16 = values.astype(np.float16).view(np.uint16)
    assert np.array_equal(f32_to_bf16(values)[number], bf16[number])
    assert np.array_equal(f32_to_f16(values)[number], f16[number])
    assert (f32_to_bf16(values)[~number] == 0x7FFF).all()
    assert np.array_equal(bf16_to_f32(bf16).view(np.uint32) >> 16, bf16)


def test_tf32_operands_lose_their_low_13_bits() -> None:
    bits = np.array([0x3F801FFF, 0x7F800001], np.uint32)
    assert decode("tf32", bits).tolist() == [1.0, np.inf]


def test_rna_rounds_ties_away_from_zero() -> None:
    assert round_tf32(np.array([0x3F801000], np.uint32), "rna")[0] == 0x3F802000
    assert round_tf32(np.array([0x3F801000], np.uint32), "rn")[0] == 0x3F800000


@pytest.mark.parametrize("bits", [4, 6])
def test_packed_codes_run_from_the_low_bits(bits: int) -> None:
    codes = RNG.integers(0, 1 << bits, (3, 16), np.uint8)
    packed = np.zeros((3, 16 * bits // 8), np.uint8)
    for row in range(3):
        whole = sum(int(code) << bits * i for i, code in enumerate(codes[row]))
        packed[row] = np.frombuffer(whole.to_bytes(16 * bits // 8, "little"), np.uint8)
    assert np.array_equal(unpack_codes(packed, bits), codes)

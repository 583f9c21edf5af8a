"""Descriptors against the worked encodings of the PTX text and of CUTLASS."""

import pytest

from ptxgen.descriptors import MatrixDescriptor
from ptxgen.errors import ArgumentError
from ptxgen.inspection.descriptor_fields import (
    INSTRUCTION_KINDS,
    Field,
    decode_instruction_descriptor,
    decode_matrix_descriptor,
)


def meanings(fields: list[Field]) -> dict[str, str]:
    return {field.name: field.meaning for field in fields}


@pytest.mark.parametrize(
    ("leading_field", "stride_field", "swizzle", "leading", "stride", "swizzle_name"),
    [
        (16, 8, 0, "256 B", "128 B", "no swizzle"),
        (1, 16, 3, "16 B", "256 B", "32B swizzle"),
        (16, 32, 3, "256 B", "512 B", "32B swizzle"),
        (32, 64, 2, "512 B", "1024 B", "64B swizzle"),
        (1, 64, 1, "16 B", "1024 B", "128B swizzle"),
    ],
)  # fmt: skip
def test_hopper_matrix_descriptor_reads_as_in_the_isa(
    leading_field: int,
    stride_field: int,
    swizzle: int,
    leading: str,
    stride: str,
    swizzle_name: str,
) -> None:
    value = 0x40 | leading_field << 16 | stride_field << 32 | swizzle << 62
    found = meanings(decode_matrix_descriptor(value))
    assert found["start address"] == "1024 B"
    assert found["leading byte offset"] == leading
    assert found["stride byte offset"] == stride
    assert found["swizzle"] == swizzle_name
    assert all(field.ok for field in decode_matrix_descriptor(value))


def test_what_plans_encode_is_what_is_decoded() -> None:
    value = MatrixDescriptor(16, 1024, 128, start_bytes=0x2000).encode()
    found = meanings(decode_matrix_descriptor(value, "sm_90"))
    assert (found["start address"], found["stride byte offset"]) == ("8192 B", "1024 B")
    assert found["swizzle"] == "128B swizzle"


def test_blackwell_matrix_descriptor_is_told_by_its_version_bits() -> None:
    value = 0x40 | 1 << 16 | 64 << 32 | 1 << 46 | 2 << 61
    fields = decode_matrix_descriptor(value)
    assert meanings(fields)["descriptor version"] == "sm_100"
    assert meanings(fields)["swizzle"] == "128B swizzle"
    assert meanings(fields)["leading offset mode"].startswith("offset")
    assert all(field.ok for field in fields)


def test_illegal_fields_are_marked_with_the_rule() -> None:
    fields = decode_matrix_descriptor(1 << 46 | 3 << 61 | 1 << 31)
    wrong = {field.name: field.meaning for field in fields if not field.ok}
    assert wrong == {
        "reserved": "illegal: must be 0",
        "swizzle": "illegal: must be 0, 1, 2, 4 or 6",
    }


def test_bf16_instruction_descriptor_reads_as_in_the_isa() -> None:
    found = meanings(decode_instruction_descriptor(0x08200490, "f16"))
    assert (found["M"], found["N"]) == ("128", "128")
    assert (found["A type"], found["B type"], found["D type"]) == ("bf16", "bf16", "f32")
    assert (found["A order"], found["B order"]) == ("K-major", "K-major")


def test_same_bits_mean_other_types_in_other_kinds() -> None:
    value = 0x08200490
    types = {
        kind: meanings(decode_instruction_descriptor(value, kind))["A type"]
        for kind in ("f16", "f8f6f4", "mxf4")
    }
    assert types == {"f16": "bf16", "f8f6f4": "e5m2", "mxf4": "e2m1"}
    bad = [f.name for f in decode_instruction_descriptor(value, "i8") if not f.ok]
    assert bad == ["D type"]


def test_block_scaled_instruction_descriptor_has_scale_fields() -> None:
    value = 1 << 4 | 3 << 29 | 1 << 23 | 32 << 17 | 2 << 27
    found = meanings(decode_instruction_descriptor(value, "mxf8f6f4"))
    assert (found["M"], found["N"], found["scale type"]) == ("256", "256", "ue8m0")
    assert (found["scale A byte"], found["scale B byte"]) == ("3", "1")


@pytest.mark.parametrize("kind", INSTRUCTION_KINDS)
def test_instruction_fields_cover_each_bit_once(kind: str) -> None:
    covered = _covered(decode_instruction_descriptor(0xFFFFFFFF, kind))
    assert covered == list(range(32))


@pytest.mark.parametrize("version", ["sm_90", "sm_100"])
def test_matrix_fields_cover_each_bit_once(version: str) -> None:
    assert _covered(decode_matrix_descriptor(0, version)) == list(range(64))


def _covered(fields: list[Field]) -> list[int]:
    bits: list[int] = []
    for field in fields:
        high, _, low = field.bits.partition(":")
        bits += range(int(low or high), int(high) + 1)
    return bits


def test_too_many_bits_or_an_unknown_kind_are_refused() -> None:
    with pytest.raises(ArgumentError, match="64-bit"):
        decode_matrix_descriptor(1 << 64)
    with pytest.raises(ArgumentError, match="32-bit"):
        decode_instruction_descriptor(-1, "f16")
    with pytest.raises(ArgumentError, match="must be one of"):
        decode_instruction_descriptor(0, "f4")

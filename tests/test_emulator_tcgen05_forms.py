"""Forms of tcgen05.mma: descriptors, shapes and texts that are refused, and cells that are read."""

import numpy as np
import pytest
from tcgen05_ctas import A_AT, B_AT, D_AT, idesc, new_ctas

from ptxgen.emulator.instruction_descriptor import decode_instruction
from ptxgen.emulator.tcgen05_mma import (
    MmaOperands,
    execute_tcgen05_mma,
    mma_reads,
    mma_tmem_reads,
    parse_tcgen05_mma,
)
from ptxgen.emulator.tmem import TensorMemory
from ptxgen.emulator.zero_columns import zero_columns
from ptxgen.errors import EmulationError, OutOfBoundsError, UnknownInstructionError


def test_worked_instruction_descriptor_decodes() -> None:
    d = decode_instruction("f16", 0x08200490)
    assert (d.m, d.n, d.a_type, d.b_type, d.d_type) == (128, 128, "bf16", "bf16", "f32")


@pytest.mark.parametrize(
    ("kind", "bits"),
    [("f16", 1 << 23), ("f16", 2 << 7), ("f8f6f4", 2 << 4), ("mxf4", 1 << 7 | 1 << 10 | 1 << 15),
     ("f16", 1 << 7 | 1 << 10), ("f8f6f4", 1 << 4 | 5 << 7 | 1 << 15)],
)  # fmt: skip
def test_illegal_instruction_descriptors_are_refused(kind: str, bits: int) -> None:
    with pytest.raises(EmulationError):
        decode_instruction(kind, bits)


@pytest.mark.parametrize(("m", "n", "group"), [(32, 32, 1), (128, 0, 1), (64, 32, 2), (256, 24, 2)])
def test_illegal_shapes_are_refused(m: int, n: int, group: int) -> None:
    op = parse_tcgen05_mma([f"cta_group::{group}", "kind::f16"])
    operands = MmaOperands(D_AT, 1 << 46, 1 << 46, idesc("f16", m, n, "bf16", "bf16"))
    with pytest.raises(EmulationError, match="M must be"):
        execute_tcgen05_mma(op, operands, new_ctas(group))


def test_accumulator_outside_its_allocation_is_named() -> None:
    ctas = new_ctas(1)
    ctas[0].tmem = TensorMemory()
    ctas[0].tmem.allocate(64)
    op = parse_tcgen05_mma(["cta_group::1", "kind::f16"])
    operands = MmaOperands(32, 1 << 46, 1 << 46, idesc("f16", 128, 64, "bf16", "bf16"))
    with pytest.raises(OutOfBoundsError, match=r"\[32, 96\)"):
        execute_tcgen05_mma(op, operands, ctas)


@pytest.mark.parametrize(
    "text",
    ["sp.cta_group::1.kind::f16", "cta_group::1.kind::f32", "kind::f16", "cta_group::1.kind::mxf4",
     "cta_group::1.kind::mxf4nvf4.block_scale", "cta_group::1.kind::mxf4.block_scale.scale_vec::4X",
     "ws.cta_group::2.kind::f16"],
)  # fmt: skip
def test_unknown_forms_are_named(text: str) -> None:
    with pytest.raises(UnknownInstructionError):
        parse_tcgen05_mma(text.split("."))


def test_reads_cover_both_operands() -> None:
    ctas = new_ctas(2)
    op = parse_tcgen05_mma(["cta_group::2", "kind::f16"])
    bits = idesc("f16", 256, 64, "bf16", "bf16")
    matrix = 64 << 32 | 1 << 46 | 2 << 61
    operands = MmaOperands(D_AT, A_AT >> 4 | matrix, B_AT >> 4 | matrix, bits)
    assert len(np.unique(mma_reads(op, operands, ctas[0]))) == 2 * (128 + 32)


def test_tensor_memory_reads_are_a_and_the_scale_words() -> None:
    op = parse_tcgen05_mma(["cta_group::2", "kind::mxf8f6f4", "block_scale"])
    bits = idesc("mxf8f6f4", 256, 96, "e4m3", "e4m3")
    operands = MmaOperands(D_AT, 300, 1 << 46, bits, a_in_tmem=True, scale_a=400, scale_b=420)
    cells = mma_tmem_reads(op, operands)
    columns = [*range(300, 308), *range(400, 404), *range(420, 423)]
    wanted = [lane * 512 + column for lane in range(128) for column in columns]
    assert sorted(cells.tolist()) == sorted(wanted)


def test_zero_column_runs_follow_the_worked_examples() -> None:
    """skip + 1 zeroed columns alternate with use + 1 used ones, after dropping the start count."""
    bits = 1 << 39 | 1 << 40 | 3 << 48 | 2
    mask = zero_columns(bits, 128, 64)
    assert mask[:10].tolist() == [False, False, True, True, False, False, False, False, True, True]
    assert zero_columns(bits | 1 << 32, 128, 64)[:4].tolist() == [False] * 4
    with pytest.raises(UnknownInstructionError):
        zero_columns(bits | 1 << 56, 128, 64)

"""wgmma: descriptors and fragments against the formulas of PTX ISA 9.0, element by element."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxgen.emulator.addresses import SMEM_WINDOW_END
from ptxgen.emulator.formats import decode, encode
from ptxgen.emulator.matrix_descriptor import decode_sm90, decode_sm100, gather_operand
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.wgmma import (
    bytes_to_a_registers,
    execute_wgmma,
    halves_to_matrix,
    matrix_to_halves,
    matrix_to_registers,
    parse_wgmma,
    registers_to_matrix,
    wgmma_reads,
)
from ptxgen.errors import EmulationError, OutOfBoundsError, UnknownInstructionError

RNG = np.random.default_rng(5)
SWIZZLE_BITS = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
SPAN = {"32B": 32, "64B": 64, "128B": 128}


def descriptor(start: int, leading: int, stride: int, swizzle: str = "none", base: int = 0) -> int:
    return (
        start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base << 49
        | SWIZZLE_BITS[swizzle] << 62
    )  # fmt: skip


def address(
    row: int,
    k: int,
    size: int,
    start: int,
    leading: int,
    stride: int,
    swizzle: str,
    base: int,
    mn_major: bool,
) -> int:
    """Byte address of one element, straight from the canonical layouts of PTX ISA 9.0."""
    kb, mb = k * size, row * size
    w = SPAN.get(swizzle, 16)
    if not mn_major and swizzle == "none":
        off = row % 8 * 16 + row // 8 * stride + kb % 16 + kb // 16 * leading
    elif not mn_major:
        off = row % 8 * w + row // 8 * stride + kb
    elif swizzle == "none":
        off = mb % 16 + mb // 16 * stride + k % 8 * 16 + k // 8 * leading
    else:
        off = mb % w + mb // w * leading + k % 8 * w + k // 8 * stride
    linear = start + off
    if swizzle == "none":
        return linear
    chunk = ((linear >> 7) - base) % (w // 16)
    return linear ^ chunk << 4


def random_smem() -> SharedMemory:
    smem = SharedMemory(SMEM_WINDOW_END)
    smem.u8[0x400:] = RNG.integers(0, 256, len(smem.u8) - 0x400, np.uint8)
    return smem


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("mn_major", [False, True])
@pytest.mark.parametrize(("start", "base"), [(0x2000, 0), (0x2020, 0), (0x2490, 0), (0x2380, 7)])
@pytest.mark.parametrize("rows", [8, 24, 64])
def test_operand_is_read_where_the_formula_says(
    swizzle: str, mn_major: bool, start: int, base: int, rows: int
) -> None:
    leading, stride = (4096, 1040) if mn_major else (528, 1168)
    bits = descriptor(start, leading, stride, swizzle, base)
    smem = random_smem()
    got = gather_operand(decode_sm90(bits), smem, rows, 16, 2, mn_major=mn_major)
    for row in range(rows):
        for k in range(16):
            at = address(row, k, 2, start, leading, stride, swizzle, base, mn_major)
            assert got[row, k] == smem.load_int(at, 2)


@pytest.mark.parametrize("size", [1, 4])
def test_k_major_operand_of_other_sizes(size: int) -> None:
    smem = random_smem()
    bits = descriptor(0x4000, 0, 1024, "128B")
    got = gather_operand(decode_sm90(bits), smem, 16, 32 // size, size, mn_major=False)
    for row in range(16):
        for k in range(32 // size):
            at = address(row, k, size, 0x4000, 0, 1024, "128B", 0, False)
            assert got[row, k] == smem.load_int(at, size)


def test_operand_outside_shared_memory_is_named() -> None:
    smem = SharedMemory(0x800)
    with pytest.raises(OutOfBoundsError, match="matrix descriptor"):
        gather_operand(
            decode_sm90(descriptor(0x400, 0, 1024, "128B")), smem, 64, 32, 1, mn_major=False
        )


@pytest.mark.parametrize("bits", [1 << 14, 1 << 31, 1 << 46, 1 << 52, 1 << 61])
def test_descriptor_with_a_reserved_bit_is_refused(bits: int) -> None:
    with pytest.raises(EmulationError, match="must be 0"):
        decode_sm90(descriptor(0x400, 0, 1024) | bits)


def test_sm100_descriptor_needs_its_version_bits() -> None:
    assert decode_sm100(1 << 46 | 2 << 61 | 0x40).swizzle == "128B"
    with pytest.raises(EmulationError, match="48:46"):
        decode_sm100(2 << 61 | 0x40)


@pytest.mark.parametrize("n", [8, 96, 256])
def test_accumulator_fragment_is_that_of_the_isa(n: int) -> None:
    matrix = np.arange(64 * n, dtype=np.uint32).reshape(64, n)
    registers = matrix_to_registers(matrix)
    halves = matrix_to_halves(matrix.astype(np.uint16)).view(np.uint16).reshape(n // 4, 128, 2)
    for t in range(128):
        for i in range(n // 2):
            row = 16 * (t // 32) + (t % 32) // 4 + 8 * ((i >> 1) & 1)
            column = 8 * (i >> 2) + 2 * (t % 4) + (i & 1)
            assert registers[i, t] == matrix[row, column]
            assert halves[i >> 1, t, i & 1] == matrix[row, column] % 2**16
    assert np.array_equal(registers_to_matrix(registers), matrix)
    assert np.array_equal(
        halves_to_matrix(matrix_to_halves(matrix.astype(np.uint16))), matrix % 2**16
    )


def test_a_registers_hold_the_fragments_of_the_isa() -> None:
    row_bytes = RNG.integers(0, 256, (64, 32), np.uint8)
    registers = bytes_to_a_registers(row_bytes)
    as_bytes = registers.view(np.uint8).reshape(4, 128, 4)
    for t in range(128):
        base, q = 16 * (t // 32) + (t % 32) // 4, t % 4
        for i in range(16):
            row, k = base + 8 * ((i >> 2) & 1), 4 * q + (i & 3) + 16 * (i >> 3)
            assert as_bytes[i >> 2, t, i & 3] == row_bytes[row, k]
        halves = row_bytes.view(np.uint16)
        for i in range(8):
            row, k = base + 8 * ((i >> 1) & 1), 2 * q + (i & 1) + 8 * (i >> 2)
            assert registers.view(np.uint16).reshape(4, 128, 2)[i >> 1, t, i & 1] == halves[row, k]
        for r in range(4):
            words = row_bytes.view(np.uint32)
            assert registers[r, t] == words[base + 8 * (r & 1), q + 4 * (r >> 1)]
            bits = np.unpackbits(row_bytes, axis=1, bitorder="little")
            for b in range(32):
                wanted = bits[base + 8 * (r & 1), 32 * q + b + 128 * (r >> 1)]
                assert registers[r, t] >> b & 1 == wanted


CASES = [
    ("m64n32k16.f32.bf16.bf16", [1, 1, 0, 0], False),
    ("m64n32k16.f32.bf16.bf16", [1, 1, 1, 1], False),
    ("m64n32k16.f16.f16.f16", [-1, 1, 0, 1], False),
    ("m64n32k16.f32.f16.f16", [1, -1, 1], True),
    ("m64n24k8.f32.tf32.tf32", [1, 1], False),
    ("m64n24k8.f32.tf32.tf32", [-1, 1], True),
    ("m64n256k32.f32.e4m3.e5m2", [1, 1], False),
    ("m64n64k32.f16.e5m2.e4m3", [1, 1], True),
    ("m64n32k32.s32.s8.u8", [], False),
    ("m64n32k32.s32.u8.s8", [], True),
    ("m64n16k256.s32.b1.b1", [], False),
]


def small_integers(name: str, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Codes and values of integers so small that every sum is exact in every format."""
    if name == "b1":
        bits = RNG.integers(0, 2, shape)
        return np.packbits(bits.astype(np.uint8), axis=1, bitorder="little"), bits
    if name in ("s8", "u8"):
        codes = RNG.integers(0, 256, shape, np.uint8)
        return codes, (codes.view(np.int8) if name == "s8" else codes).astype(np.int64)
    values = RNG.integers(-2, 3, shape)
    if name == "tf32":
        return values.astype(np.float32).view(np.uint32), values
    codes = encode(name, values)
    return codes.astype(np.uint8 if name.startswith("e") else np.uint16), values


def store_operand(smem: SharedMemory, codes: Any, mn_major: bool, start: int) -> int:
    """Lay an operand out unswizzled with packed groups; its descriptor."""
    rows, k = codes.shape
    size = codes.itemsize
    leading, stride = (rows * 16, 128) if not mn_major else (rows * size * 8, 128)
    for row in range(rows):
        for i in range(k):
            at = address(row, i, size, start, leading, stride, "none", 0, mn_major)
            smem.store_int(at, int(codes[row, i]), size)
    return descriptor(start, leading, stride)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("shape", "immediates", "from_registers"), CASES)
def test_wgmma_multiplies_small_integers_exactly(
    shape: str, immediates: list[int], from_registers: bool, exact: bool
) -> None:
    op = parse_wgmma(["wgmma", "mma_async", "sync", "aligned", *shape.split(".")], immediates,
                     from_registers)  # fmt: skip
    smem = SharedMemory(SMEM_WINDOW_END)
    a_codes, a = small_integers(op.a_type, (64, op.k))
    b_codes, b = small_integers(op.b_type, (op.n, op.k))
    b_bits = store_operand(smem, b_codes, op.mn_major_b, 0x8000)
    a_operand: Any
    if from_registers:
        a_operand = bytes_to_a_registers(a_codes.view(np.uint8).reshape(64, 32))
    else:
        a_operand = store_operand(smem, a_codes, op.mn_major_a, 0x1000)
    c = RNG.integers(-5, 6, (64, op.n))
    wanted = a @ b.T * (-1 if op.negate_a != op.negate_b else 1)
    pack: Callable[[Any], Any] = {
        "f32": lambda x: matrix_to_registers(x.astype(np.float32).view(np.uint32)),
        "s32": lambda x: matrix_to_registers(x.astype(np.int32).view(np.uint32)),
        "f16": lambda x: matrix_to_halves(x.astype(np.float16).view(np.uint16)),
    }[op.d_type]
    for accumulate in (False, True):
        got = execute_wgmma(
            op, pack(c), a_operand, b_bits, smem, accumulate=accumulate, exact=exact
        )
        assert got.shape == (op.accumulator_registers, 128)
        assert np.array_equal(got, pack(wanted + c if accumulate else wanted))


@pytest.mark.parametrize(("saturate", "wanted"), [(True, 2**31 - 1), (False, -(2**31) + 31)])
def test_integer_accumulators_wrap_or_saturate(saturate: bool, wanted: int) -> None:
    qualifiers = ["m64n8k32", *(["satfinite"] if saturate else []), "s32", "u8", "u8"]
    op = parse_wgmma(qualifiers, [], True)
    smem = SharedMemory(SMEM_WINDOW_END)
    b_bits = store_operand(smem, np.ones((8, 32), np.uint8), False, 0x400)
    a = bytes_to_a_registers(np.ones((64, 32), np.uint8))
    c = matrix_to_registers(np.full((64, 8), 2**31 - 1, np.uint32))
    got = execute_wgmma(op, c, a, b_bits, smem, accumulate=True)
    assert (got.view(np.int32) == wanted).all()


def test_exact_wgmma_equals_the_chain_of_models_on_random_data() -> None:
    from ptxgen.emulator.numerics import fused_dot, fused_model

    op = parse_wgmma(["m64n16k32", "f32", "e4m3", "e4m3"], [1, 1], True)
    smem = SharedMemory(SMEM_WINDOW_END)
    a_codes = encode("e4m3", RNG.standard_normal((64, 32))).astype(np.uint8)
    b_codes = encode("e4m3", RNG.standard_normal((16, 32))).astype(np.uint8)
    c = RNG.standard_normal((64, 16)).astype(np.float32)
    b_bits = store_operand(smem, b_codes, False, 0x400)
    got = execute_wgmma(
        op, matrix_to_registers(c.view(np.uint32)), bytes_to_a_registers(a_codes), b_bits, smem,
        accumulate=True, exact=True,
    )  # fmt: skip
    model = fused_model("wgmma", "e4m3", "f32")
    wanted = fused_dot(decode("e4m3", a_codes), decode("e4m3", b_codes), c, model, "e4m3", "e4m3")
    assert np.array_equal(registers_to_matrix(got).view(np.float32), wanted)


def test_reads_are_the_bytes_of_both_operands() -> None:
    op = parse_wgmma(["m64n8k32", "f32", "e4m3", "e4m3"], [1, 1], False)
    smem = SharedMemory(SMEM_WINDOW_END)
    a, b = descriptor(0x2000, 0, 1024, "128B"), descriptor(0x8000, 0, 1024, "128B")
    pieces = wgmma_reads(op, a, b, smem)
    wanted = set()
    for start, rows in ((0x2000, 64), (0x8000, 8)):
        for row in range(rows):
            for k in (0, 16):
                wanted.add(address(row, k, 1, start, 0, 1024, "128B", 0, False))
    assert sorted(pieces.tolist()) == sorted(wanted)


@pytest.mark.parametrize(
    ("qualifiers", "immediates"),
    [
        ("m64n12k16.f32.bf16.bf16", [1, 1, 0, 0]),
        ("m64n264k16.f32.bf16.bf16", [1, 1, 0, 0]),
        ("m64n8k16.f16.bf16.bf16", [1, 1, 0, 0]),
        ("m64n40k32.s32.s8.s8", []),
        ("m64n8k32.f32.e4m3.e4m3", [1, 1, 0, 0]),
        ("m64n8k32.f32.e4m3.e4m3", [0, 1]),
        ("m64n8k16.f32.f16.bf16", [1, 1, 0, 0]),
    ],
)
def test_forms_that_ptxas_rejects_are_unknown(qualifiers: str, immediates: list[int]) -> None:
    with pytest.raises(UnknownInstructionError):
        parse_wgmma(qualifiers.split("."), immediates, False)

"""mma.sync, ldmatrix and stmatrix against the fragment tables of PTX ISA 9.0."""

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from ptxgen.emulator.formats import decode_table, encode
from ptxgen.emulator.matrix_moves import ldmatrix, movmatrix, stmatrix
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.mma_sync import execute_mma_sync, gather_scales, parse_mma_sync
from ptxgen.errors import MisalignedError, UnknownInstructionError

RNG = np.random.default_rng(9)
G, Q = np.arange(32) >> 2, np.arange(32) % 4

# PTX ISA 9.0, "Matrix Fragments for mma": element i of a lane -> (A row, A k, B k), by (k, bits)
FRAGMENTS: dict[tuple[int, int], Any] = {
    (8, 16): (4, lambda i: (G + 8 * (i >> 1), 2 * Q + (i & 1)), 2, lambda i: 2 * Q + i),
    (16, 16): (8, lambda i: (G + 8 * ((i >> 1) & 1), 2 * Q + (i & 1) + 8 * (i >> 2)),
               4, lambda i: 2 * Q + (i & 1) + 8 * (i >> 1)),
    (4, 32): (2, lambda i: (G + 8 * i, Q), 1, lambda i: Q),
    (8, 32): (4, lambda i: (G + 8 * (i & 1), Q + 4 * (i >> 1)), 2, lambda i: Q + 4 * i),
    (16, 8): (8, lambda i: (G + 8 * (i >> 2), 4 * Q + (i & 3)), 4, lambda i: 4 * Q + i),
    (32, 8): (16, lambda i: (G + 8 * ((i >> 2) & 1), 4 * Q + (i & 3) + 16 * (i >> 3)),
              8, lambda i: 4 * Q + (i & 3) + 16 * (i >> 2)),
    (64, 4): (32, lambda i: (G + 8 * ((i >> 3) & 1), 8 * Q + (i & 7) + 32 * (i >> 4)),
              16, lambda i: 8 * Q + (i & 7) + 32 * (i >> 3)),
}  # fmt: skip


def pack(codes: Any, bits: int) -> Any:
    """Elements of each lane, low first, (elements, 32) -> registers (n, 32)."""
    per_register = 32 // bits
    registers = np.zeros((len(codes) // per_register, 32), np.uint32)
    for i, element in enumerate(codes):
        registers[i // per_register] |= element.astype(np.uint32) << bits * (i % per_register)
    return registers


def fragments(k: int, bits: int, a: Any, b: Any) -> tuple[Any, Any]:
    """Registers of A (16, k) and B (8, k) given as codes."""
    num_a, place_a, num_b, place_b = FRAGMENTS[k, bits]
    of_a = pack([a[place_a(i)] for i in range(num_a)], bits)
    of_b = pack([b[G, place_b(i)] for i in range(num_b)], bits)
    return of_a, of_b


def spread_c(matrix: Any) -> Any:
    return np.array([matrix[G + 8 * (i >> 1), 2 * Q + (i & 1)] for i in range(4)])


CASES = [
    ("m16n8k8.row.col.f32.f16.f16.f32", 16), ("m16n8k16.row.col.f32.bf16.bf16.f32", 16),
    ("m16n8k16.row.col.f16.f16.f16.f16", 16), ("m16n8k4.row.col.f32.tf32.tf32.f32", 32),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", 32), ("m16n8k32.row.col.f32.e4m3.e5m2.f32", 8),
    ("m16n8k16.row.col.f32.e4m3.e4m3.f32", 8), ("m16n8k32.row.col.s32.s8.u8.s32", 8),
    ("m16n8k16.row.col.s32.u8.u8.s32", 8), ("m16n8k64.row.col.s32.s4.u4.s32", 4),
    ("m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", 8),
]  # fmt: skip


def integers(name: str, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Codes in register containers and values, small enough for exact sums."""
    if name in ("s8", "u8", "s4", "u4"):
        bits = int(name[1])
        values = RNG.integers(0, 1 << bits, shape) - (1 << bits - 1 if name[0] == "s" else 0)
        return values & ((1 << bits) - 1), values
    values = RNG.integers(-2, 3, shape)
    if name == "tf32":
        return values.astype(np.float32).view(np.uint32), values
    codes = encode(name, values)
    return codes << 2 if name == "e2m1" else codes, values


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("text", "bits"), CASES)
def test_mma_multiplies_small_integers_exactly(text: str, bits: int, exact: bool) -> None:
    op = parse_mma_sync(["mma", "sync", "aligned", *text.split(".")])
    a_codes, a = integers(op.a_type, (16, op.k))
    b_codes, b = integers(op.b_type, (8, op.k))
    of_a, of_b = fragments(op.k, bits, a_codes, b_codes)
    c = RNG.integers(-9, 10, (16, 8))
    wanted = spread_c(a @ b.T + c)
    if op.d_type == "f16":
        halves = spread_c(c).astype(np.float16).view(np.uint16)
        got = execute_mma_sync(op, of_a, of_b, pack(halves, 16), exact=exact)
        assert np.array_equal(got, pack(wanted.astype(np.float16).view(np.uint16), 16))
        return
    dtype = np.int32 if op.d_type == "s32" else np.float32
    got = execute_mma_sync(op, of_a, of_b, spread_c(c).astype(dtype).view(np.uint32), exact=exact)
    assert np.array_equal(got.view(dtype), wanted.astype(dtype))


# B of sparse shapes, as FRAGMENTS: (k, bits) -> (elements, k of element i)
SPARSE_B: dict[tuple[int, int], Any] = {
    (16, 16): (4, lambda i: 2 * Q + (i & 1) + 8 * (i >> 1)),
    (32, 16): (8, lambda i: 2 * Q + (i & 1) + 8 * (i >> 1)),
    (8, 32): (2, lambda i: Q + 4 * i), (16, 32): (4, lambda i: Q + 4 * i),
    (32, 8): (8, lambda i: 4 * Q + (i & 3) + 16 * (i >> 2)),
    (64, 8): (16, lambda i: 4 * Q + (i & 3) + 16 * (i >> 2)),
    (128, 4): (32, lambda i: 8 * Q + (i & 7) + 32 * (i >> 3)),
}  # fmt: skip


def thin_out(a: Any, bits: int) -> tuple[Any, Any, Any]:
    """Which elements of A (16, k) stay: their k (16, k / 2), and four bits for each group."""
    unit, choices = (1, ((0,), (1,))) if bits == 32 else (
        2 if bits == 4 else 1, tuple(combinations(range(4), 2)))  # fmt: skip
    size = unit * (2 if bits == 32 else 4)
    places, groups = [], []
    for _ in range(16):
        chosen = [choices[i] for i in RNG.integers(0, len(choices), a.shape[1] // size)]
        groups.append([(0x4, 0xE)[c[0]] if bits == 32 else c[0] | c[1] << 2 for c in chosen])
        places.append([size * g + unit * p + u
                       for g, c in enumerate(chosen) for p in c for u in range(unit)])  # fmt: skip
    kept = np.array(places)
    return kept, np.take_along_axis(a, kept, 1), np.array(groups)


def metadata_words(groups: Any, bits: int, selector: int) -> Any:
    """The register of each lane; those that do not count hold other bits."""
    found = RNG.integers(0, 2**32, 32).astype(np.uint32)
    per_lane = 4 if bits >= 16 else 8
    parts = groups.shape[1] // per_lane
    for g, part in product(range(8), range(parts)):
        low, high = (
            sum(int(x) << 4 * i for i, x in enumerate(groups[row, part * per_lane :][:per_lane]))
            for row in (g, g + 8)
        )
        if bits >= 16:
            found[4 * g + parts * selector + part] = low | high << 16
        else:
            first = 4 * g + 2 * (parts * selector + part)
            found[first : first + 2] = low, high
    return found


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("text", "bits", "selector"),
    [("m16n8k16.row.col.f32.f16.f16.f32", 16, 2), ("m16n8k32.row.col.f32.bf16.bf16.f32", 16, 1),
     ("m16n8k8.row.col.f32.tf32.tf32.f32", 32, 3), ("m16n8k16.row.col.f32.tf32.tf32.f32", 32, 0),
     ("m16n8k32.row.col.s32.s8.u8.s32", 8, 1), ("m16n8k64.row.col.s32.u8.s8.s32", 8, 0),
     ("m16n8k64.row.col.f32.e4m3.e5m2.f32", 8, 0), ("m16n8k128.row.col.s32.s4.u4.s32", 4, 0)],
)  # fmt: skip
def test_a_sparse_a_is_multiplied_where_its_metadata_says(
    text: str, bits: int, selector: int, exact: bool
) -> None:
    op = parse_mma_sync(["sp::ordered_metadata", *text.split(".")])
    a_codes, a = integers(op.a_type, (16, op.k))
    b_codes, b = integers(op.b_type, (8, op.k))
    kept, packed, groups = thin_out(a_codes, bits)
    thin = np.zeros_like(a)
    np.put_along_axis(thin, kept, np.take_along_axis(a, kept, 1), 1)
    num_a, place_a, _, _ = FRAGMENTS[op.k // 2, bits]
    num_b, place_b = SPARSE_B[op.k, bits]
    of_a = pack([packed[place_a(i)] for i in range(num_a)], bits)
    of_b = pack([b_codes[G, place_b(i)] for i in range(num_b)], bits)
    c = RNG.integers(-9, 10, (16, 8))
    dtype = np.int32 if op.d_type == "s32" else np.float32
    got = execute_mma_sync(
        op, of_a, of_b, spread_c(c).astype(dtype).view(np.uint32), exact=exact,
        metadata=metadata_words(groups, bits, selector), selector=selector,
    )  # fmt: skip
    assert np.array_equal(got.view(dtype), spread_c(thin @ b.T + c).astype(dtype))


@pytest.mark.parametrize(
    ("kind", "types", "blocks", "scale_type"),
    [("mxf8f6f4", ("e4m3", "e5m2"), 1, "ue8m0"), ("mxf4", ("e2m1", "e2m1"), 2, "ue8m0"),
     ("mxf4nvf4", ("e2m1", "e2m1"), 4, "ue4m3")],
)  # fmt: skip
def test_block_scales_multiply_their_rows_and_columns(
    kind: str, types: tuple[str, str], blocks: int, scale_type: str
) -> None:
    k, bits = (32, 8) if kind == "mxf8f6f4" else (64, 4)
    op = parse_mma_sync(
        f"m16n8k{k}.row.col.kind::{kind}.block_scale.scale_vec::{blocks}X.f32.{types[0]}."
        f"{types[1]}.f32.{scale_type}".split(".")
    )
    a_codes = encode(types[0], RNG.integers(-2, 3, (16, k)))
    b_codes = encode(types[1], RNG.integers(-2, 3, (8, k)))
    of_a, of_b = fragments(k, bits, a_codes, b_codes)
    low = 126 if scale_type == "ue8m0" else 0x30
    words = RNG.integers(low, low + 3, (2, 32, 4), np.uint8)
    registers = words.view(np.uint32).reshape(2, 1, 32)
    byte_id = 2 if blocks == 2 else 0
    got = execute_mma_sync(
        op, of_a, of_b, np.zeros((4, 32), np.uint32),
        scale_a=gather_scales(registers[0], byte_id, 1, blocks, True),
        scale_b=gather_scales(registers[1], byte_id, 3, blocks, False),
    )  # fmt: skip
    table, scaled = decode_table(scale_type), np.zeros((16, 8))
    a, b = decode_table(types[0])[a_codes], decode_table(types[1])[b_codes]
    for row in range(16):
        for column in range(8):
            for block in range(blocks):
                part = slice(block * k // blocks, (block + 1) * k // blocks)
                # rows g come from even lanes of the pair, rows g + 8 from odd ones
                of_row = words[0, 4 * (row % 8) + 2 + row // 8, byte_id + block]
                of_column = words[1, 4 * column + 3, byte_id + block]
                scaled[row, column] += (
                    table[of_row] * table[of_column] * (a[row, part] @ b[column, part])
                )
    assert np.array_equal(got.view(np.float32), spread_c(scaled).astype(np.float32))


def test_exact_bf16_equals_mmasim() -> None:
    torch = pytest.importorskip("torch")
    nv_ptx = pytest.importorskip("mmasim.nv_ptx")
    reference = nv_ptx.MMA("Hopper", "m16n8k16.f32.bf16.bf16.f32")
    a, b = (RNG.integers(0, 1 << 16, (n, 16), np.uint16) for n in (16, 8))
    c = RNG.standard_normal((16, 8)).astype(np.float32)
    wanted = reference(
        torch.from_numpy(a).view(torch.bfloat16), torch.from_numpy(b).view(torch.bfloat16).T,
        torch.from_numpy(c),
    ).numpy()  # fmt: skip
    op = parse_mma_sync(["m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"])
    of_a, of_b = fragments(16, 16, a, b)
    got = execute_mma_sync(op, of_a, of_b, spread_c(c).view(np.uint32), exact=True)
    assert np.array_equal(got, spread_c(wanted).view(np.uint32))


@pytest.mark.parametrize("data", ["normal", "any bits"])
@pytest.mark.parametrize(
    ("kind", "a_type", "b_type", "size", "scale_type"),
    [("f8f6f4", "e4m3", "e5m2", 0, ""), ("f8f6f4", "e2m1", "e3m2", 0, ""),
     ("mxf8f6f4", "e4m3", "e2m1", 32, "ue8m0"), ("mxf8f6f4", "e2m3", "e5m2", 32, "ue8m0"),
     ("mxf4", "e2m1", "e2m1", 32, "ue8m0"), ("mxf4nvf4", "e2m1", "e2m1", 32, "ue8m0"),
     ("mxf4nvf4", "e2m1", "e2m1", 16, "ue4m3")],
)  # fmt: skip
def test_exact_sums_of_sm_120_equal_mmasim(
    kind: str, a_type: str, b_type: str, size: int, scale_type: str, data: str
) -> None:
    torch = pytest.importorskip("torch")
    nv_ptx = pytest.importorskip("mmasim.nv_ptx")
    packed = kind.startswith("mxf4")
    k, bits = (64, 4) if packed else (32, 8)
    widths = {"e2m3": 6, "e3m2": 6, "e2m1": 4}

    def operand(name: str, rows: int) -> tuple[Any, Any]:
        codes = RNG.integers(0, 1 << widths.get(name, 8), (rows, k), np.uint8)
        if data == "normal":
            codes = encode(name, RNG.standard_normal((rows, k)) * 2).astype(np.uint8)
        if name in ("e4m3", "e5m2"):
            kinds = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
            return codes, torch.from_numpy(codes).view(kinds[name])
        if packed:
            return codes, torch.from_numpy(codes[:, ::2] << 4 | codes[:, 1::2])
        placed = codes << 2 if name == "e2m1" else codes
        return placed, torch.from_numpy(placed)

    (a_codes, a), (b_codes, b) = operand(a_type, 16), operand(b_type, 8)
    c = RNG.standard_normal((16, 8)).astype(np.float32)
    of_a, of_b = fragments(k, bits, a_codes, b_codes)
    of_c, types = spread_c(c).view(np.uint32), f"f32.{a_type}.{b_type}.f32"
    inputs = [a, b.T, torch.from_numpy(c)]
    scales: dict[str, Any] = {}
    if size:
        codes = [RNG.integers(100, 120, (n, k // size), np.uint8) for n in (16, 8)]
        view = torch.float8_e8m0fnu if scale_type == "ue8m0" else torch.float8_e4m3fn
        of_rows, of_columns = (torch.from_numpy(x.copy()).view(view) for x in codes)
        inputs += [of_rows, of_columns.T]
        text = f"m16n8k{k}.kind::{kind}.block{size}.{types}.{scale_type}"
        wanted = nv_ptx.MMABlockScale("RTX Blackwell", text)(*inputs).numpy()
        form = f"kind::{kind}.block_scale.scale_vec::{k // size}X.{types}.{scale_type}"
        scales = {"scale_a": codes[0], "scale_b": codes[1]}
    else:
        form = f"kind::{kind}.{types}"
        wanted = nv_ptx.MMA("RTX Blackwell", f"m16n8k{k}.{form}")(*inputs).numpy()
    op = parse_mma_sync(f"m16n8k{k}.row.col.{form}".split("."))
    got = execute_mma_sync(op, of_a, of_b, of_c, exact=True, native_fp8=True, **scales)
    assert np.array_equal(got, spread_c(wanted).view(np.uint32))


@pytest.mark.parametrize(
    "text", ["m8n8k4.row.col.f64.f64.f64.f64", "m16n8k16.row.col.f32.f16.bf16.f32",
             "sp.m16n8k128.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
             "m16n8k16.row.col.s32.f16.f16.s32"],
)  # fmt: skip
def test_forms_that_are_not_modelled_are_named(text: str) -> None:
    with pytest.raises(UnknownInstructionError):
        parse_mma_sync(text.split("."))


def tile_memory(num_rows: int) -> tuple[SharedMemory, Any, Any]:
    """Random rows of 16 bytes at scattered aligned addresses."""
    smem = SharedMemory(0x2000)
    order = RNG.permutation(64)[:32]
    addresses = 0x400 + 48 * order
    smem.u8[0x400:0x2000] = RNG.integers(0, 256, 0x1C00, np.uint8)
    rows = np.array([smem.read(int(a), 16).copy() for a in addresses[:num_rows]])
    return smem, addresses, rows


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transpose", [False, True])
def test_ldmatrix_gives_each_lane_two_halves_of_its_row_or_column(
    count: int, transpose: bool
) -> None:
    smem, addresses, rows = tile_memory(8 * count)
    got = ldmatrix(smem, addresses, "m8n8", count, transpose=transpose)
    halves = rows.view(np.uint16).reshape(count, 8, 8)
    for j in range(count):
        for t in range(32):
            for b in range(2):
                at = (2 * Q[t] + b, G[t]) if transpose else (G[t], 2 * Q[t] + b)
                assert got[j, t] >> 16 * b & 0xFFFF == halves[j][at]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_undoes_ldmatrix(count: int, transpose: bool) -> None:
    smem, addresses, rows = tile_memory(8 * count)
    registers = ldmatrix(smem, addresses, "m8n8", count, transpose=transpose)
    target = SharedMemory(0x2000)
    stmatrix(target, addresses, registers, "m8n8", transpose=transpose)
    got = np.array([target.read(int(a), 16) for a in addresses[: 8 * count]])
    assert np.array_equal(got, rows)


@pytest.mark.parametrize("count", [1, 2])
def test_byte_ldmatrix_transposes_16_by_16(count: int) -> None:
    smem, addresses, rows = tile_memory(16 * count)
    got = ldmatrix(smem, addresses, "m16n16", count, transpose=True)
    for j in range(count):
        for h in range(2):
            for t in range(32):
                for b in range(4):
                    wanted = rows[16 * j + 4 * Q[t] + b, G[t] + 8 * h]
                    assert got[2 * j + h, t] >> 8 * b & 0xFF == wanted


@pytest.mark.parametrize("count", [1, 2, 4])
def test_byte_stmatrix_packs_in_accumulator_order(count: int) -> None:
    registers = RNG.integers(0, 1 << 32, (count, 32), np.uint32)
    smem, addresses, _ = tile_memory(32)
    stmatrix(smem, addresses, registers, "m16n8", transpose=True)
    for j in range(count):
        for t in range(32):
            for b in range(4):
                at = int(addresses[8 * j + 2 * Q[t] + (b & 1)]) + G[t] + 8 * (b >> 1)
                assert smem.load_int(at, 1) == registers[j, t] >> 8 * b & 0xFF


@pytest.mark.parametrize(("packed", "bits"), [("b4x16_p64", 4), ("b6x16_p32", 6)])
def test_packed_rows_unpack_to_the_low_bits_of_bytes(packed: str, bits: int) -> None:
    smem, addresses, rows = tile_memory(8)
    got = ldmatrix(smem, addresses, "m8n16", 1, packed=packed)
    for t in range(32):
        whole = int.from_bytes(rows[G[t]].tobytes(), "little")
        for b in range(4):
            code = whole >> bits * int(4 * Q[t] + b) & ((1 << bits) - 1)
            assert got[0, t] >> 8 * b & 0xFF == code


def test_movmatrix_transposes() -> None:
    registers = RNG.integers(0, 1 << 32, (1, 32), np.uint32)
    halves = registers.view(np.uint16).reshape(8, 8)
    assert np.array_equal(movmatrix(registers).view(np.uint16).reshape(8, 8), halves.T)


def test_matrix_row_off_16_bytes_faults() -> None:
    smem = SharedMemory(0x1000)
    with pytest.raises(MisalignedError):
        ldmatrix(smem, 0x408 + 16 * np.arange(32), "m8n8", 1)

"""tcgen05.mma: descriptors, operand split, accumulator layouts and scales of ptx.md D4 to D10."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ptxgen.emulator.addresses import SMEM_WINDOW_END
from ptxgen.emulator.formats import decode, decode_table, encode
from ptxgen.emulator.instruction_descriptor import decode_instruction
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.tcgen05_cp import copy_to_tmem
from ptxgen.emulator.tcgen05_mma import (
    MmaOperands,
    execute_tcgen05_mma,
    mma_cells,
    mma_reads,
    mma_tmem_reads,
    parse_tcgen05_mma,
)
from ptxgen.emulator.tmem import TensorMemory
from ptxgen.emulator.zero_columns import zero_columns
from ptxgen.errors import EmulationError, OutOfBoundsError, UnknownInstructionError

RNG = np.random.default_rng(29)
TYPE_CODES = {
    "f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "i8": {"u8": 0, "s8": 1},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
}  # fmt: skip
TYPE_CODES["mxf8f6f4"] = TYPE_CODES["f8f6f4"]
TYPE_CODES["mxf4"] = TYPE_CODES["mxf4nvf4"] = {"e2m1": 1}
SIZE = {"f16": 2, "bf16": 2, "tf32": 4}
A_AT, B_AT, D_AT = 0x1000, 0x8000, 64


@dataclass
class Cta:
    smem: SharedMemory
    tmem: TensorMemory


def new_ctas(count: int) -> list[Cta]:
    ctas = [Cta(SharedMemory(SMEM_WINDOW_END), TensorMemory(cta=i)) for i in range(count)]
    for cta in ctas:
        cta.tmem.allocate(512)
    return ctas


def idesc(
    kind: str,
    m: int,
    n: int,
    a: str,
    b: str,
    d: str = "f32",
    *,
    negate: int = 0,
    major: int = 0,
    saturate: int = 0,
    ids: tuple[int, int] = (0, 0),
    ue8m0: int = 1,
) -> int:
    bits = TYPE_CODES[kind][a] << 7 | TYPE_CODES[kind][b] << 10 | negate << 13 | major << 15
    bits |= n >> 3 << 17
    if kind.startswith("mx"):
        return bits | m >> 7 << 27 | ue8m0 << 23 | ids[0] << 29 | ids[1] << 4
    return bits | m >> 4 << 24 | {"f16": 0, "f32": 1, "s32": 2}[d] << 4 | saturate << 3


def integers(kind: str, name: str, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Codes (one per element) and values of small integers."""
    if kind == "i8":
        codes = RNG.integers(0, 256, shape, np.uint8)
        return codes, (codes.view(np.int8) if name == "s8" else codes).astype(np.int64)
    values = RNG.integers(-2, 3, shape)
    if name == "tf32":
        return values.astype(np.float32).view(np.uint32), values
    return encode(name, values).astype(np.uint16 if SIZE.get(name) == 2 else np.uint8), values


def row_bytes(kind: str, name: str, codes: Any) -> Any:
    """32 bytes of each row as they lie in shared memory (ptx.md D7)."""
    if name not in ("e2m3", "e3m2", "e2m1"):
        return codes.view(np.uint8).reshape(len(codes), 32)
    bits, slot = (4, 32) if kind in ("mxf4", "mxf4nvf4") else (4 if name == "e2m1" else 6, 16)
    out = np.zeros((len(codes), 32), np.uint8)
    for row, of_row in enumerate(codes):
        for first in range(0, len(of_row), 16 if slot == 16 else 64):
            part = of_row[first : first + (16 if slot == 16 else 64)]
            whole = sum(int(code) << bits * i for i, code in enumerate(part))
            raw = np.frombuffer(whole.to_bytes(slot, "little"), np.uint8)
            out[row, first if slot == 16 else 0 :][:slot] = raw
    return out


def store_k_major(smem: SharedMemory, raw: Any, start: int) -> int:
    """Rows of 32 bytes as 128B-swizzled K-major tile at a 1024-byte boundary; its descriptor."""
    for row, of_row in enumerate(raw):
        for chunk in (0, 16):
            linear = start + row % 8 * 128 + row // 8 * 1024 + chunk
            smem.write(linear ^ (linear >> 7 & 7) << 4, of_row[chunk : chunk + 16].copy())
    return start >> 4 | 64 << 32 | 1 << 46 | 2 << 61


def share(values: Any, count: int, rank: int) -> Any:
    size = len(values) // count
    return values[rank * size : (rank + 1) * size]


def place_operands(
    ctas: list[Cta],
    kind: str,
    a_type: str,
    b_type: str,
    a_codes: Any,
    b_codes: Any,
) -> tuple[int, int]:
    for rank, cta in enumerate(ctas):
        a_raw, b_raw = row_bytes(kind, a_type, a_codes), row_bytes(kind, b_type, b_codes)
        a_bits = store_k_major(cta.smem, share(a_raw, len(ctas), rank), A_AT)
        b_bits = store_k_major(cta.smem, share(b_raw, len(ctas), rank), B_AT)
    return a_bits, b_bits


def cell_of(m: int, n: int, r: int, column: int, group: int, ws: bool) -> tuple[int, int, int]:
    """(cta, lane, column) of D[r, column], straight from ptx.md D8."""
    if ws and m == 64:
        return 0, r + 64 * (column // (n // 2)), column % (n // 2)
    if ws and m == 32:
        return 0, r + 32 * (column // (n // 4)), column % (n // 4)
    if group == 1:
        return (0, r, column) if m == 128 else (0, r % 16 + 32 * (r // 16), column)
    if m == 256:
        return r // 128, r % 128, column
    return r // 64, r % 64 + 64 * (column // (n // 2)), column % (n // 2)


def read_d(
    ctas: list[Cta],
    m: int,
    n: int,
    group: int,
    ws: bool = False,
    lane: int = 0,
) -> Any:
    d = np.empty((m, n), np.uint32)
    for r in range(m):
        for column in range(n):
            cta, at, offset = cell_of(m, n, r, column, group, ws)
            d[r, column] = ctas[cta].tmem.cells[lane + at, D_AT + offset]
    return d


def write_d(ctas: list[Cta], values: Any, group: int, ws: bool = False) -> None:
    m, n = values.shape
    for r in range(m):
        for column in range(n):
            cta, at, offset = cell_of(m, n, r, column, group, ws)
            ctas[cta].tmem.cells[at, D_AT + offset] = values[r, column]


CASES = [
    ("f16", "bf16", "bf16", "f32", 128, 24, 1, False),
    ("f16", "f16", "f16", "f16", 64, 32, 1, False),
    ("f16", "bf16", "bf16", "f32", 256, 32, 2, False),
    ("f16", "f16", "f16", "f32", 128, 64, 2, False),
    ("tf32", "tf32", "tf32", "f32", 128, 16, 1, False),
    ("f8f6f4", "e4m3", "e5m2", "f32", 64, 48, 1, False),
    ("f8f6f4", "e2m1", "e3m2", "f32", 128, 16, 1, False),
    ("f8f6f4", "e2m3", "e4m3", "f16", 256, 32, 2, False),
    ("i8", "s8", "u8", "s32", 128, 32, 1, False),
    ("i8", "u8", "s8", "s32", 128, 64, 2, False),
    ("f16", "bf16", "bf16", "f32", 64, 64, 1, True),
    ("f8f6f4", "e5m2", "e5m2", "f32", 32, 128, 1, True),
    ("i8", "u8", "u8", "s32", 128, 64, 1, True),
]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("kind", "a_type", "b_type", "d_type", "m", "n", "group", "ws"), CASES)
def test_mma_multiplies_small_integers_exactly(
    kind: str,
    a_type: str,
    b_type: str,
    d_type: str,
    m: int,
    n: int,
    group: int,
    ws: bool,
    exact: bool,
    accumulate: bool,
) -> None:
    ctas = new_ctas(group)
    k = 32 // SIZE.get(a_type, 1)
    a_codes, a = integers(kind, a_type, (m, k))
    b_codes, b = integers(kind, b_type, (n, k))
    a_bits, b_bits = place_operands(ctas, kind, a_type, b_type, a_codes, b_codes)
    c = RNG.integers(-9, 10, (m, n))
    to_words: Callable[[Any], Any] = {
        "f32": lambda x: x.astype(np.float32).view(np.uint32),
        "f16": lambda x: x.astype(np.float16).view(np.uint16).astype(np.uint32),
        "s32": lambda x: x.astype(np.int32).view(np.uint32),
    }[d_type]
    write_d(ctas, to_words(c), group, ws)
    op = parse_tcgen05_mma(
        f"tcgen05.mma{'.ws' if ws else ''}.cta_group::{group}.kind::{kind}".split(".")
    )
    bits = idesc(kind, m, n, a_type, b_type, d_type)
    operands = MmaOperands(D_AT, a_bits, b_bits, bits, accumulate=accumulate)
    before = [cta.tmem.cells.copy() for cta in ctas]
    execute_tcgen05_mma(op, operands, ctas, exact=exact)
    wanted = a @ b.T + (c if accumulate else 0)
    assert np.array_equal(read_d(ctas, m, n, group, ws), to_words(wanted))
    for rank, cta in enumerate(ctas):
        untouched = np.ones(cta.tmem.cells.size, bool)
        untouched[mma_cells(op, operands, rank)] = False
        assert np.array_equal(cta.tmem.cells.ravel()[untouched], before[rank].ravel()[untouched])


def run_simple(
    m: int = 128,
    n: int = 32,
    group: int = 1,
    change: Callable[[list[Cta], Any, Any], dict[str, Any]] | None = None,
    kind: str = "f16",
    types: tuple[str, str] = ("bf16", "bf16"),
    major: int = 0,
    negate: int = 0,
    **fields: Any,
) -> tuple[Any, Any]:
    """D of small integers as values, with what a test changes; also A @ B.T."""
    ctas = new_ctas(group)
    a_codes, a = integers(kind, types[0], (m, 32 // SIZE.get(types[0], 1)))
    b_codes, b = integers(kind, types[1], (n, 32 // SIZE.get(types[1], 1)))
    a_bits, b_bits = place_operands(ctas, kind, *types, a_codes, b_codes)
    given = {"a": a_bits, "b": b_bits, "accumulate": False, **fields}
    if change:
        given |= change(ctas, a_codes, b_codes)
    bits = idesc(kind, m, n, *types, negate=negate, major=major)
    op = parse_tcgen05_mma([f"cta_group::{group}", f"kind::{kind}"])
    d_address = given.pop("d", D_AT)
    execute_tcgen05_mma(op, MmaOperands(d_address, instruction=bits, **given), ctas)
    lane = d_address >> 16
    return read_d(ctas, m, n, group, lane=lane).view(np.float32), a @ b.T


@pytest.mark.parametrize(("m", "group"), [(64, 1), (128, 1), (128, 2), (256, 2)])
@pytest.mark.parametrize("types", [("f16", "bf16"), ("f8f6f4", "e4m3"), ("f8f6f4", "e2m1"),
                                   ("tf32", "tf32")])  # fmt: skip
def test_a_may_come_from_tensor_memory(m: int, group: int, types: tuple[str, str]) -> None:
    kind, name = types

    def change(ctas: list[Cta], a_codes: Any, b_codes: Any) -> dict[str, Any]:
        codes = a_codes << 2 if name == "e2m1" else a_codes
        words = codes.view(np.uint8).reshape(m, 32).view(np.uint32)
        for r in range(m):
            cta, lane, _ = cell_of(m, 32, r, 0, group, False)
            ctas[cta].tmem.cells[lane, 400:408] = words[r]
            if m == 128 and group == 2:
                ctas[cta].tmem.cells[lane + 64, 400:408] = words[r]
        return {"a": 400, "a_in_tmem": True}

    got, wanted = run_simple(m, 32, group, change, kind, (name, name))
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize(("negate", "sign"), [(1, -1), (2, -1), (3, 1)])
def test_negate_bits_flip_operands(negate: int, sign: int) -> None:
    got, wanted = run_simple(negate=negate)
    assert np.array_equal(got, sign * wanted)


def test_m64_may_start_at_lane_16() -> None:
    got, wanted = run_simple(64, d=16 << 16 | D_AT)
    assert np.array_equal(got, wanted)
    with pytest.raises(EmulationError, match="start at a lane"):
        run_simple(128, d=16 << 16 | D_AT)


@pytest.mark.parametrize(("m", "group"), [(128, 1), (256, 2)])
def test_disabled_lanes_keep_their_old_contents(m: int, group: int) -> None:
    words = [int(w) for w in RNG.integers(0, 1 << 32, 4 * group, np.uint32)]
    got, wanted = run_simple(m, group=group, disabled_lanes=tuple(words))
    for r in range(m):
        if words[r // 32] >> r % 32 & 1:
            assert (got[r].view(np.uint32) == 0xFFFFFFFF).all()
        else:
            assert np.array_equal(got[r], wanted[r])


def test_scale_input_d_divides_the_addend_by_a_power_of_two() -> None:
    def change(ctas: list[Cta], a_codes: Any, b_codes: Any) -> dict[str, Any]:
        write_d(ctas, np.full((128, 32), 24, np.float32).view(np.uint32), 1)
        return {"accumulate": True, "scale_d": 3}

    got, wanted = run_simple(change=change)
    assert np.array_equal(got, wanted + 3)


def test_mn_major_operands_read_transposed_tiles() -> None:
    def change(ctas: list[Cta], a_codes: Any, b_codes: Any) -> dict[str, Any]:
        # unswizzled MN-major: 16-byte row chunks 128 B apart, groups of 8 k after all of them
        found = {}
        for key, codes, start in (("a", a_codes, A_AT), ("b", b_codes, B_AT)):
            rows, leading = len(codes), len(codes) // 8 * 128
            for r in range(rows):
                for k in range(16):
                    at = start + r * 2 % 16 + r // 8 * 128 + k % 8 * 16 + k // 8 * leading
                    ctas[0].smem.store_int(at, int(codes[r, k]), 2)
            found[key] = start >> 4 | leading >> 4 << 16 | 8 << 32 | 1 << 46
        return found

    got, wanted = run_simple(major=3, change=change)
    assert np.array_equal(got, wanted)


SCALED = [
    ("mxf8f6f4", "e4m3", "e5m2", 1, "ue8m0", 128, 64, 1, (3, 1)),
    ("mxf8f6f4", "e2m1", "e3m2", 1, "ue8m0", 256, 32, 2, (0, 2)),
    ("mxf8f6f4", "e4m3", "e4m3", 1, "ue8m0", 128, 64, 2, (1, 0)),
    ("mxf4", "e2m1", "e2m1", 2, "ue8m0", 128, 256, 1, (2, 0)),
    ("mxf4nvf4", "e2m1", "e2m1", 4, "ue4m3", 128, 48, 1, (0, 0)),
    ("mxf4nvf4", "e2m1", "e2m1", 4, "ue4m3", 256, 64, 2, (0, 0)),
]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("kind", "a_type", "b_type", "blocks", "scale_type", "m", "n", "group", "ids"), SCALED
)
def test_block_scales_come_from_their_bytes_of_every_quarter(
    kind: str,
    a_type: str,
    b_type: str,
    blocks: int,
    scale_type: str,
    m: int,
    n: int,
    group: int,
    ids: tuple[int, int],
    exact: bool,
) -> None:
    ctas = new_ctas(group)
    k = 32 if kind == "mxf8f6f4" else 64
    a_codes, a = integers(kind, a_type, (m, k))
    b_codes, b = integers(kind, b_type, (n, k))
    a_bits, b_bits = place_operands(ctas, kind, a_type, b_type, a_codes, b_codes)
    low = 126 if scale_type == "ue8m0" else 0x34
    codes_a = RNG.integers(low, low + 4, (m, 4), np.uint8)
    codes_b = RNG.integers(low, low + 4, (n, 4), np.uint8)
    for rank, cta in enumerate(ctas):
        for column, codes in ((400, share(codes_a, group, rank)), (420, codes_b)):
            for row, of_row in enumerate(codes):
                word = of_row.view(np.uint32)[0]
                cta.tmem.cells[row % 32 :: 32, column + row // 32] = word
    op = parse_tcgen05_mma(
        f"cta_group::{group}.kind::{kind}.block_scale.scale_vec::{blocks}X".split(".")
    )
    bits = idesc(kind, m, n, a_type, b_type, ids=ids, ue8m0=scale_type == "ue8m0")
    operands = MmaOperands(D_AT, a_bits, b_bits, bits, accumulate=False, scale_a=400, scale_b=420)
    execute_tcgen05_mma(op, operands, ctas, exact=exact)
    table, wanted = decode_table(scale_type).astype(np.float64), np.zeros((m, n))
    for block in range(blocks):
        part = slice(block * k // blocks, (block + 1) * k // blocks)
        scales = np.outer(table[codes_a[:, ids[0] + block]], table[codes_b[:, ids[1] + block]])
        wanted += scales * (a[:, part] @ b[:, part].T)
    assert np.array_equal(read_d(ctas, m, n, group).view(np.float32), wanted)


def test_each_quarter_reads_its_own_copy_of_the_scales() -> None:
    """A kernel that forgets to replicate its scales gets wrong rows, as on hardware."""
    ctas = new_ctas(1)
    a_codes, a = integers("mxf8f6f4", "e4m3", (128, 32))
    b_codes, b = integers("mxf8f6f4", "e4m3", (32, 32))
    a_bits, b_bits = place_operands(ctas, "mxf8f6f4", "e4m3", "e4m3", a_codes, b_codes)
    ctas[0].tmem.cells[:, 400:404] = 127
    for quarter in range(4):
        ctas[0].tmem.cells[32 * quarter : 32 * quarter + 32, 420] = 127 + quarter
    op = parse_tcgen05_mma(["cta_group::1", "kind::mxf8f6f4", "block_scale"])
    operands = MmaOperands(
        D_AT, a_bits, b_bits, idesc("mxf8f6f4", 128, 32, "e4m3", "e4m3"), accumulate=False,
        scale_a=400, scale_b=420,
    )  # fmt: skip
    execute_tcgen05_mma(op, operands, ctas)
    wanted = (a @ b.T) * 2.0 ** (np.arange(128) // 32)[:, None]
    assert np.array_equal(read_d(ctas, 128, 32, 1).view(np.float32), wanted)


def test_one_cp_of_the_scale_block_makes_the_layout_that_mma_reads() -> None:
    """ptx.md D10: byte 16 (m % 32) + 4 (m // 32) + ks, copied by 32x128b.warpx4."""
    from ptxgen.emulator.tcgen05_operands import scale_values

    ctas = new_ctas(1)
    codes = RNG.integers(100, 140, (128, 4), np.uint8)
    for row in range(128):
        for ks in range(4):
            at = 0x800 + 16 * (row % 32) + 4 * (row // 32) + ks
            ctas[0].smem.store_int(at, int(codes[row, ks]), 1)
    bits = 0x80 | 8 << 32 | 1 << 46
    copy_to_tmem(bits, 16, "32x128b", "warpx4", ctas[0].smem, ctas[0].tmem)
    found = scale_values(ctas[0].tmem, 16, 128, 0, 4, "ue8m0")
    wanted = decode_table("ue8m0")[codes]
    assert all(np.array_equal(found[quarter], wanted) for quarter in range(4))


@pytest.mark.parametrize("kind", ["normal", "any bits"])
@pytest.mark.parametrize(
    ("name", "a_type", "b_type"),
    [("f8f6f4", "e4m3", "e4m3"), ("f8f6f4", "e5m2", "e2m3"), ("mxf8f6f4", "e4m3", "e2m1"),
     ("mxf4nvf4", "e2m1", "e2m1")],
)  # fmt: skip
def test_exact_mode_equals_mmasim_bitwise(name: str, a_type: str, b_type: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    nv_ptx = pytest.importorskip("mmasim.nv_ptx")
    k, blocks = (64, 4) if name == "mxf4nvf4" else (32, 1)
    bits = {"e2m3": 6, "e3m2": 6, "e2m1": 4}
    ctas = new_ctas(1)

    def operand(type_name: str, rows: int) -> tuple[Any, Any]:
        codes = RNG.integers(0, 1 << bits.get(type_name, 8), (rows, k), np.uint8)
        if kind == "normal":
            codes = encode(type_name, RNG.standard_normal((rows, k)) * 2).astype(np.uint8)
        if type_name in ("e4m3", "e5m2"):
            dtype = torch.float8_e4m3fn if type_name == "e4m3" else torch.float8_e5m2
            return codes, torch.from_numpy(codes).view(dtype)
        if name == "mxf4nvf4":
            return codes, torch.from_numpy(codes[:, ::2] << 4 | codes[:, 1::2])
        return codes, torch.from_numpy(codes << 2 if type_name == "e2m1" else codes)

    (a_codes, a), (b_codes, b) = operand(a_type, 128), operand(b_type, 64)
    a_bits, b_bits = place_operands(ctas, name, a_type, b_type, a_codes, b_codes)
    c = RNG.standard_normal((128, 64)).astype(np.float32)
    write_d(ctas, c.view(np.uint32), 1)
    scaled, inputs = name.startswith("mx"), [a, b.T, torch.from_numpy(c)]
    scale_type = "ue4m3" if name == "mxf4nvf4" else "ue8m0"
    if scaled:
        codes = [RNG.integers(100, 120, (n, 4), np.uint8) for n in (128, 64)]
        for column, of_rows in ((400, codes[0]), (420, codes[1])):
            for row, of_row in enumerate(of_rows):
                ctas[0].tmem.cells[row % 32 :: 32, column + row // 32] = of_row.view(np.uint32)[0]
        dtype = torch.float8_e8m0fnu if scale_type == "ue8m0" else torch.float8_e4m3fn
        scales = [torch.from_numpy(x[:, :blocks].copy()).view(dtype) for x in codes]
        block = 16 if blocks == 4 else 32
        text = f"m128n64k{k}.kind::{name}.block{block}.f32.{a_type}.{b_type}.{scale_type}"
        inputs += [scales[0], scales[1].T]
        wanted = nv_ptx.TCGen05MMABlockScale("Blackwell", text)(*inputs).numpy()
    else:
        text = f"m128n64k32.kind::{name}.f32.{a_type}.{b_type}"
        wanted = nv_ptx.TCGen05MMA("Blackwell", text)(*inputs).numpy()
    vector = [f"scale_vec::{blocks}X"] if scaled else []
    op = parse_tcgen05_mma(
        ["cta_group::1", f"kind::{name}", *(["block_scale"] if scaled else []), *vector]
    )
    described = idesc(name, 128, 64, a_type, b_type, ue8m0=scale_type == "ue8m0")
    operands = MmaOperands(D_AT, a_bits, b_bits, described, scale_a=400, scale_b=420)
    execute_tcgen05_mma(op, operands, ctas, exact=True)
    assert np.array_equal(read_d(ctas, 128, 64, 1), wanted.view(np.uint32))


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


def test_fp8_keeps_25_bits_unlike_wgmma() -> None:
    ctas = new_ctas(1)
    a = np.zeros((128, 32), np.uint8)
    a[:, :2] = encode("e5m2", np.array([1.0, 2.0**-14])).astype(np.uint8)
    b = encode("e5m2", np.ones((16, 32))).astype(np.uint8)
    a_bits, b_bits = place_operands(ctas, "f8f6f4", "e5m2", "e5m2", a, b)
    op = parse_tcgen05_mma(["cta_group::1", "kind::f8f6f4"])
    bits = idesc("f8f6f4", 128, 16, "e5m2", "e5m2")
    operands = MmaOperands(D_AT, a_bits, b_bits, bits, accumulate=False)
    execute_tcgen05_mma(op, operands, ctas, exact=True)
    assert (read_d(ctas, 128, 16, 1).view(np.float32) == 1 + 2.0**-14).all()
    assert decode("e5m2", a)[0, 1] == 2.0**-14

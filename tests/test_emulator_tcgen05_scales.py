"""Block scales of tcgen05.mma: where they lie, and sums bit for bit."""

from typing import Any

import numpy as np
import pytest
from tcgen05_ctas import (
    D_AT,
    RNG,
    idesc,
    integers,
    new_ctas,
    place_operands,
    read_d,
    share,
    write_d,
)

from ptxgen.emulator.formats import decode_table, encode
from ptxgen.emulator.tcgen05_cp import copy_to_tmem
from ptxgen.emulator.tcgen05_mma import (
    MmaOperands,
    execute_tcgen05_mma,
    parse_tcgen05_mma,
)

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
    """One atom of scales: byte 16 (m % 32) + 4 (m // 32) + ks, copied by 32x128b.warpx4."""
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

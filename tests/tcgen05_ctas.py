"""CTAs for tcgen05.mma: operands in shared memory, accumulators and scales in tensor memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.emulator.addresses import SMEM_WINDOW_END
from ptxgen.emulator.formats import encode
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.tcgen05_mma import (
    MmaOperands,
    execute_tcgen05_mma,
    parse_tcgen05_mma,
)
from ptxgen.emulator.tmem import TensorMemory

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
    """32 bytes of each row as they lie in shared memory."""
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
    """(cta, lane, column) of D[r, column], straight from the data path layouts of PTX ISA 9.0."""
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

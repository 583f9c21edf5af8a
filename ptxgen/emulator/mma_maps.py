"""Matrix fragments given by a map: which element of a matrix each register part of a lane holds.

For wmma, whose fragments are opaque (here those of mma.sync, as hardware has them), and for the
shapes of mma.sync beside m16n8. Source: PTX ISA 9.0, "Matrix Fragments for mma.m8n8k4" and the
sections after it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[Any]
"""Bit patterns of elements as unsigned integers."""

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f32": 32,
    "s32": 32, "f64": 64,
}  # fmt: skip

_LANE = np.arange(32)
_G, _Q = _LANE >> 2, _LANE & 3


@dataclass(frozen=True, eq=False)
class FragmentMap:
    """Element i of lane t is element (batch, row, column)[i, t]; each array is (elements, 32)."""

    shape: tuple[int, int, int]
    """Matrices, rows, columns."""
    batch: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]

    def gather(self, codes: Codes) -> Codes:
        """Elements (n, 32) of the warp -> matrices."""
        found = np.zeros(self.shape, codes.dtype)
        count = len(self.row)
        found[self.batch, self.row, self.column] = codes[:count]
        return found

    def scatter(self, matrices: Codes) -> Codes:
        """Matrices -> elements (n, 32) of the warp."""
        found: Codes = matrices[self.batch, self.row, self.column]
        return found


def _map(
    shape: tuple[int, int, int], row: NDArray[Any], column: NDArray[Any], batch: Any = 0
) -> FragmentMap:
    row, column, numbers = np.broadcast_arrays(row, column, batch)
    return FragmentMap(shape, numbers.astype(int), row.astype(int), column.astype(int))


def _elements(count: int) -> NDArray[np.int64]:
    return np.arange(count)[:, None]


@lru_cache(maxsize=256)
def operand_map(rows: int, k: int, bits: int, tall: bool) -> FragmentMap:
    """A (`tall`: tiles of 16 rows, where there are 16) or B transposed, (rows, k) of `bits` each.

    Registers hold 32 bits, of which a lane's are consecutive along k.
    """
    per_word = max(32 // bits, 1)
    words = k // (4 * per_word)
    tile = 16 if tall and rows % 16 == 0 else 8
    halves = tile // 8
    i = _elements(rows * k // 32)
    word, part = i // per_word, i % per_word
    in_tile, at = word // (words * halves), word % (words * halves)
    row = tile * in_tile + 8 * (at % halves) + _G
    column = per_word * (4 * (at // halves) + _Q) + part
    return _map((1, rows, k), row, column)


@lru_cache(maxsize=64)
def result_map(rows: int, columns: int) -> FragmentMap:
    """C and D: tiles of 16x8 (8x8 where there are 8 rows), along the columns first."""
    tile = 16 if rows % 16 == 0 else 8
    per_tile = tile // 4
    i = _elements(rows * columns // 32)
    number, at = i // per_tile, i % per_tile
    across = columns // 8
    row = tile * (number // across) + 8 * (at >> 1) + _G
    column = 8 * (number % across) + 2 * _Q + (at & 1)
    return _map((1, rows, columns), row, column)


@lru_cache(maxsize=16)
def volta_map(role: str, layout: str) -> FragmentMap:
    """m8n8k4 of f16: four products at once, one for each pair of lane quads.

    `role`: a, b (transposed), c16 or c32; `layout`: row or col, of a and b.
    """
    high = 4 * (_LANE >= 16)
    batch = _LANE // 4 % 4
    if role in ("a", "b"):
        i = _elements(4)
        along_k = (layout == "row") == (role == "a")
        row, column = (_Q + high, i) if along_k else (i + high, _Q)
        return _map((4, 8, 4), row, column, batch)
    i = _elements(8)
    if role == "c16":
        return _map((4, 8, 8), _Q + high, i, batch)
    row = (_LANE & 1) + (i & 2) + high
    return _map((4, 8, 8), row, (i & 4) + (_LANE & 2) + (i & 1), batch)


def split_words(registers: NDArray[Any], bits: int) -> Codes:
    """Registers (n, 32) -> their elements in order, (n * 32 / bits, 32)."""
    if bits in (32, 64):
        return registers
    per_word = 32 // bits
    shifts = (np.arange(per_word, dtype=np.uint32) * np.uint32(bits))[None, :, None]
    parts: Codes = registers[:, None, :] >> shifts & np.uint32((1 << bits) - 1)
    return parts.reshape(-1, 32)


def join_words(codes: Codes, bits: int, num_registers: int) -> NDArray[Any]:
    """The inverse of split_words; elements repeat until `num_registers` are full, as wmma's f16
    operands do."""
    if bits in (32, 64):
        return np.ascontiguousarray(codes)
    per_word = 32 // bits
    parts = codes.astype(np.uint32).reshape(-1, per_word, 32)
    shifts = (np.arange(per_word, dtype=np.uint32) * np.uint32(bits))[None, :, None]
    words = np.bitwise_or.reduce(parts << shifts, axis=1)
    return np.tile(words, (num_registers // len(words), 1))

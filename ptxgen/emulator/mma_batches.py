"""Many independent mma.sync of one warp at once: one batched product instead of one call each.

Layouts as in mma_sync.py, with the batch as a first axis. Only the fast numerics: products and sums
in float32 (integers exactly), as `execute_mma_sync` without `exact`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.formats import decode, f32_to_f16
from ptxgen.emulator.mma_sync import MmaSync

Registers = NDArray[np.uint32]

_DTYPES: dict[str, Any] = {
    "f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32, "e4m3": np.uint8, "e5m2": np.uint8,
}  # fmt: skip


def can_batch(instruction: MmaSync) -> bool:
    """Whether a form is served here."""
    op = instruction
    if op.kind or op.sparse:
        return False
    if op.d_type == "s32":
        return op.a_type in ("s8", "u8") and op.b_type in ("s8", "u8")
    return op.a_type in _DTYPES and op.b_type in _DTYPES


def execute_batch(
    instruction: MmaSync, count: int, a: Registers, b: Registers, c: Registers
) -> Registers:
    """D of `count` instructions: registers (count * n, 32) in, (count * n, 32) out."""
    op = instruction
    left = _rows(a, count, 2)
    right = _rows(b, count, 1)
    if op.d_type == "s32":
        x = (left.view(np.int8) if op.a_type == "s8" else left).astype(np.float32)
        y = (right.view(np.int8) if op.b_type == "s8" else right).astype(np.float32)
        # |sum| <= 32 * 255 * 255 < 2^24, so float32 is exact
        total = np.matmul(x, y.transpose(0, 2, 1)).astype(np.int64)
        total += _matrices(c, count).view(np.int32)
        if op.saturate:
            np.clip(total, -(2**31), 2**31 - 1, out=total)
        return _registers(total.astype(np.uint32))
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.matmul(
            decode(op.a_type, left.view(_DTYPES[op.a_type])),
            decode(op.b_type, right.view(_DTYPES[op.b_type])).transpose(0, 2, 1),
        )
        if op.d_type == "f16":
            halves = np.ascontiguousarray(c).view(np.float16).reshape(count, 16, 8)
            codes = f32_to_f16(product + halves.astype(np.float32))
            return np.ascontiguousarray(codes).view(np.uint32).reshape(-1, 32)
        product += _matrices(c, count).view(np.float32)
    return _registers(product.view(np.uint32))


def _rows(registers: Registers, count: int, groups: int) -> NDArray[np.uint8]:
    """Fragments of A (groups = 2) or B (1) -> bytes (count, 8 * groups, row bytes)."""
    parts = np.ascontiguousarray(registers).view(np.uint8).reshape(count, -1, groups, 8, 4, 4)
    return parts.transpose(0, 2, 3, 1, 4, 5).reshape(count, 8 * groups, -1)


def _matrices(registers: Registers, count: int) -> Registers:
    parts = registers.reshape(count, 2, 2, 8, 4).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(parts).reshape(count, 16, 8)


def _registers(matrices: Registers) -> Registers:
    parts = matrices.reshape(-1, 2, 8, 4, 2).transpose(0, 1, 4, 2, 3)
    return np.ascontiguousarray(parts).reshape(-1, 32)

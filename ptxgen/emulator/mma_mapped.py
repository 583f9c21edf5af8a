"""Products of the matrices of wmma and of mma.sync's shapes beside m16n8, element codes in and out.

Source: PTX ISA 9.0, "Warp Level Matrix Multiply-Accumulate Instructions".
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.double import double_operation
from ptxgen.emulator.formats import decode, f32_to_f16
from ptxgen.emulator.mma_maps import Codes
from ptxgen.emulator.numerics import FusedModel, fused_dot


@dataclass(frozen=True)
class MappedMma:
    """One wmma.mma or mma.sync, without its operands."""

    shape: tuple[int, int, int]
    """M, N, K."""
    d_type: str
    a_type: str
    b_type: str
    c_type: str
    a_layout: str = "row"
    b_layout: str = "col"
    saturate: bool = False
    xor: bool = False
    """Of b1: count the bits that differ, instead of those that both have."""

    @property
    def is_volta(self) -> bool:
        """m8n8k4 of f16: four products."""
        return self.shape == (8, 8, 4) and self.a_type == "f16"

    @property
    def model(self) -> FusedModel:
        """How it adds. On sm_90, wmma of tf32 is two MMAs of four products, and one of f32 C and
        f16 D is rounded to f32 first (SASS of ptxas 13.0; results of an H200)."""
        short = self.is_volta or self.a_type == "tf32"
        rounded_twice = self.c_type == "f32" and not self.is_volta
        return FusedModel(25, "f32" if rounded_twice else self.d_type, 4 if short else 256)


def multiply(operation: MappedMma, a: Codes, b: Codes, c: Codes, exact: bool) -> Codes:
    """D = A B + C for n products: A (n, M, K), B transposed (n, N, K), C and D (n, M, N)."""
    op = operation
    if op.a_type == "f64":
        if exact:
            return _chained_products(a, b, c)
        x, y = a.view(np.float64), b.view(np.float64)
        wide: Codes = (np.matmul(x, y.transpose(0, 2, 1)) + c.view(np.float64)).view(np.uint64)
        return wide
    if op.d_type == "s32":
        return _integers(op, a, b, c)
    left, right = _floats(op.a_type, a), _floats(op.b_type, b)
    addend = _floats(op.c_type, c)
    if exact:
        d = np.stack(
            [
                fused_dot(*matrices, op.model, op.a_type, op.b_type)
                for matrices in zip(left, right, addend, strict=True)
            ]
        )
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            d = np.matmul(left, right.transpose(0, 2, 1)) + addend
    if op.d_type == "f16":
        return f32_to_f16(d)
    return d.view(np.uint32)


def _chained_products(a: Codes, b: Codes, c: Codes) -> Codes:
    """f64: one fused multiply-add after the other, k upwards (measured on an H200)."""
    total: Any = c
    for k in range(a.shape[2]):
        pair = np.broadcast_arrays(a[:, :, None, k], b[:, None, :, k])
        total = double_operation("fma", "rn", *pair, total)
    found: Codes = total
    return found


def _floats(kind: str, codes: Codes) -> NDArray[np.float32]:
    if kind == "f32":
        return codes.astype(np.uint32).view(np.float32)
    dtype: Any = np.uint32 if kind == "tf32" else np.uint16
    return np.asarray(decode(kind, codes.astype(dtype)), np.float32)


def _integers(op: MappedMma, a: Codes, b: Codes, c: Codes) -> Codes:
    x, y = _signed(op.a_type, a), _signed(op.b_type, b).transpose(0, 2, 1)
    total = np.matmul(x, y)
    if op.xor:
        total = x.sum(axis=2, keepdims=True) + y.sum(axis=1, keepdims=True) - 2 * total
    total += c.astype(np.uint32).view(np.int32)
    if op.saturate:
        total = np.clip(total, -(2**31), 2**31 - 1)
    found: Codes = total.astype(np.uint32)
    return found


def _signed(kind: str, codes: Codes) -> NDArray[np.int64]:
    wide = codes.astype(np.int64)
    if kind[0] != "s":
        return wide
    half = 1 << int(kind[1:]) - 1
    return (wide ^ half) - half

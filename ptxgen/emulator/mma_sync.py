"""mma.sync for one warp: which instruction, its fragments, its result.

Registers of a warp are arrays of shape (registers, 32) of uint32, one column per lane. Source: PTX
ISA 9.0, "Warp Level Matrix Multiply-Accumulate Instructions".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.formats import decode, decode_table, f32_to_f16, unpack_codes
from ptxgen.emulator.mma_sparse import places_in_rows, sparse_fp8_sm90
from ptxgen.emulator.numerics import FusedModel, fused_dot, mma_sync_fp8_sm90
from ptxgen.emulator.numerics_blocks import block_scaled_dot
from ptxgen.emulator.wgmma_sparse import Places, dense_rows, sparse_dot
from ptxgen.errors import UnknownInstructionError

Registers = NDArray[np.uint32]
"""Shape (registers, 32)."""

_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m3": 8, "e3m2": 8, "e2m1": 8,
    "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
"""Bits that one element takes in a register; the f8f6f4 kinds use a byte for each."""
_FP8 = ("e4m3", "e5m2")
_SMALL = (*_FP8, "e2m3", "e3m2", "e2m1")


@dataclass(frozen=True)
class MmaSync:
    """One mma.sync instruction of shape m16n8kK, without its operands."""

    k: int
    d_type: str
    a_type: str
    b_type: str
    kind: str = ""
    """Empty, f8f6f4, mxf8f6f4, mxf4 or mxf4nvf4."""
    scale_type: str = ""
    """ue8m0 or ue4m3 of the block-scaled kinds."""
    blocks: int = 0
    """Scales per row and instruction."""
    saturate: bool = False
    sparse: bool = False
    """Half of A's elements are there."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of A in registers: 16 or 32."""
        bits = 4 if self.kind in ("mxf4", "mxf4nvf4") else _BITS[self.a_type]
        return self.k * bits // (16 if self.sparse else 8)

    @property
    def num_groups(self) -> int:
        """Groups of elements in a sparse row, for each of which there are four bits."""
        return self.k // {32: 2, 4: 8}.get(_BITS[self.a_type], 4)

    @property
    def num_selectors(self) -> int:
        """Choices of the lanes in a quad that hold the metadata."""
        return 16 // self.num_groups


def parse_mma_sync(qualifiers: Sequence[str]) -> MmaSync:
    """The instruction with these dot-separated `qualifiers` (mma, sync, aligned may be missing).

    Raises: UnknownInstructionError for shapes and types that are not modelled (m8n8k4, f64, scaled
        sparse ones).
    """
    text = ".".join(qualifiers)
    unknown = UnknownInstructionError(f"this form is not modelled: {text}")
    shape = re.search(r"m16n8k(\d+)", text)
    types = [q for q in qualifiers if q in (*_BITS, "f32", "s32")]
    sparse = any(q.startswith("sp") for q in qualifiers)
    if shape is None or len(types) != 4:
        raise unknown
    d, a, b, c = types
    k, kind = int(shape[1]), re.search(r"kind::(\w+)", text)
    scale = re.search(r"scale_vec::(\d)X", text)
    scale_type = qualifiers[-1] if qualifiers[-1] in ("ue8m0", "ue4m3") else ""
    found = MmaSync(
        k, d, a, b, kind[1] if kind else "", scale_type, int(scale[1]) if scale else 0,
        "satfinite" in qualifiers, sparse,
    )  # fmt: skip
    if sparse and (kind or a == "b1"):
        raise unknown
    if found.kind == "mxf8f6f4" and not found.blocks:
        found = MmaSync(k, d, a, b, found.kind, scale_type, 1)
    if found.kind == "mxf4" and not found.blocks:
        found = MmaSync(k, d, a, b, found.kind, scale_type, 2)
    families = [("f16",), ("bf16",), ("tf32",), _SMALL, ("s8", "u8"), ("s4", "u4"), ("b1",)]
    same = any(a in family and b in family for family in families)
    legal_d = ("s32",) if a[0] in "su" or a == "b1" else ("f32", "f16")
    if not same or d not in legal_d or c != d or found.row_bytes not in (16, 32):
        raise unknown
    if a == "b1" and "xor" in text:
        raise unknown
    return found


def execute_mma_sync(
    instruction: MmaSync,
    a: Registers,
    b: Registers,
    c: Registers,
    *,
    exact: bool = False,
    native_fp8: bool = False,
    scale_a: NDArray[np.uint8] | None = None,
    scale_b: NDArray[np.uint8] | None = None,
    metadata: NDArray[np.uint32] | None = None,
    selector: int = 0,
) -> Registers:
    """The registers of D, shape as `c`.

    `exact` follows the tensor core bit for bit. `native_fp8`: the target has FP8 in mma.sync
    (sm_89, sm_120), else ptxas builds it from f16 steps (sm_90; assumed for sm_100). Scale codes
    of the block-scaled kinds: (16, blocks) and (8, blocks), see `gather_scales`. Of sparse ones the
    `metadata` of the lanes (32,) and the `selector` of those that count.
    """
    op = instruction
    a_bytes, b_bytes = a_to_bytes(a), b_to_bytes(b)
    places = None
    if metadata is not None:
        places = places_in_rows(metadata, selector, op.num_groups, _BITS[op.a_type])
    if op.d_type == "s32":
        return c_from_matrix(_integer(op, a_bytes, b_bytes, c, places).astype(np.uint32))
    left, right = _values(op, op.a_type, a_bytes), _values(op, op.b_type, b_bytes)
    addend = c_to_f16(c) if op.d_type == "f16" else c_to_matrix(c).view(np.float32)
    if scale_a is not None and scale_b is not None:
        table = decode_table(op.scale_type)
        d = _scaled(op, left, right, addend, table.take(scale_a), table.take(scale_b))
    elif places is not None:
        d = _sparse(op, left, right, addend, places, exact, native_fp8)
    elif not exact:
        with np.errstate(over="ignore", invalid="ignore"):
            d = left @ right.T + addend
    elif op.a_type in _FP8 and not native_fp8:
        d = mma_sync_fp8_sm90(left, right, addend, op.d_type)
    else:
        d = fused_dot(left, right, addend, FusedModel(25, op.d_type), op.a_type, op.b_type)
    if op.d_type == "f16":
        return f16_from_matrix(f32_to_f16(d))
    return c_from_matrix(d.view(np.uint32))


def gather_scales(
    registers: Registers, byte_id: int, thread_id: int, blocks: int, of_a: bool
) -> NDArray[np.uint8]:
    """Scale codes from the scale register (1, 32) of each lane.

    A: lane pairs (q = 2 thread_id, + 1) of each group give rows g and g + 8; B: lane q = thread_id
    gives column g. Source: CUTLASS 4.7, mma_traits_sm120.hpp; not run on hardware.
    """
    parts = np.ascontiguousarray(registers).reshape(8, 4).view(np.uint8).reshape(8, 4, 4)
    taken = parts[:, :, byte_id : byte_id + blocks]
    if not of_a:
        return np.ascontiguousarray(taken[:, thread_id])
    first = 2 * thread_id
    return np.concatenate([taken[:, first], taken[:, first + 1]])


# Lane 4 g + q. Register 2 c + h of A holds bytes 16 c + 4 q .. + 3 of row g + 8 h, register c of B
# the same bytes of column g, whatever the element type; register 2 h + b of C holds element
# (g + 8 h, 2 q + b).


def a_to_bytes(registers: Registers) -> NDArray[np.uint8]:
    """A, (2 or 4, 32) -> (16, row bytes)."""
    parts = np.ascontiguousarray(registers).view(np.uint8).reshape(-1, 2, 8, 4, 4)
    return parts.transpose(1, 2, 0, 3, 4).reshape(16, -1)


def b_to_bytes(registers: Registers) -> NDArray[np.uint8]:
    """B, (1 or 2, 32) -> (8, row bytes): one row per column of B."""
    parts = np.ascontiguousarray(registers).view(np.uint8).reshape(-1, 8, 4, 4)
    return parts.transpose(1, 0, 2, 3).reshape(8, -1)


def c_to_matrix(registers: Registers) -> Registers:
    """C or D of 32-bit elements, (4, 32) -> (16, 8)."""
    parts = registers.reshape(2, 2, 8, 4).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(parts).reshape(16, 8)


def c_from_matrix(matrix: Registers) -> Registers:
    """The inverse of c_to_matrix."""
    parts = matrix.reshape(2, 8, 4, 2).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(parts).reshape(4, 32)


def c_to_f16(registers: Registers) -> NDArray[np.float32]:
    """C of f16 elements, (2, 32) -> float32 (16, 8)."""
    halves = np.ascontiguousarray(registers).view(np.float16)
    return halves.reshape(16, 8).astype(np.float32)


def f16_from_matrix(matrix: NDArray[np.uint16]) -> Registers:
    """f16 codes (16, 8) -> (2, 32)."""
    return np.ascontiguousarray(matrix).view(np.uint32).reshape(2, 32)


def _values(op: MmaSync, type_name: str, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    if op.kind in ("mxf4", "mxf4nvf4"):
        return decode_table("e2m1").take(unpack_codes(raw, 4))
    if type_name == "e2m1":
        return decode_table("e2m1").take(raw >> 2 & 15)
    if type_name in ("e2m3", "e3m2"):
        return decode_table(type_name).take(raw & 63)
    dtype: Any = {8: np.uint8, 16: np.uint16, 32: np.uint32}[_BITS[type_name]]
    return decode(type_name, raw.view(dtype))


def _scaled(
    op: MmaSync, a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32],
    scale_a: NDArray[np.float32], scale_b: NDArray[np.float32],
) -> NDArray[np.float32]:  # fmt: skip
    if op.kind == "mxf8f6f4":
        model = FusedModel(25, "f32")
        return fused_dot(
            a, b, c, model, op.a_type, op.b_type, scale_a[:, 0], scale_b[:, 0]
        )  # fmt: skip
    return block_scaled_dot(a, b, c, scale_a, scale_b, op.scale_type)


def _sparse(
    op: MmaSync, a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32],
    places: Places, exact: bool, native_fp8: bool,
) -> NDArray[np.float32]:  # fmt: skip
    types = (op.a_type, op.b_type)
    if exact and op.a_type in _FP8 and not native_fp8:
        return sparse_fp8_sm90(a, b, c, places)
    model = FusedModel(25, op.d_type) if exact else None
    with np.errstate(over="ignore", invalid="ignore"):
        return sparse_dot(a, b, c, places, model, types)


def _integer(
    op: MmaSync, a: NDArray[np.uint8], b: NDArray[np.uint8], c: Registers, places: Places | None
) -> NDArray[np.int64]:
    def values(raw: NDArray[np.uint8], name: str) -> NDArray[np.int64]:
        if name == "b1":
            return np.unpackbits(raw, axis=1).astype(np.int64)
        if name in ("s4", "u4"):
            codes = unpack_codes(raw, 4).astype(np.int64)
            return codes - 16 * (codes > 7) if name == "s4" else codes
        return (raw.view(np.int8) if name == "s8" else raw).astype(np.int64)

    left = values(a, op.a_type)
    if places is not None:
        left = dense_rows(left.astype(np.float32), places, op.k).astype(np.int64)
    total = left @ values(b, op.b_type).T
    total += c_to_matrix(c).view(np.int32)
    return np.clip(total, -(2**31), 2**31 - 1) if op.saturate else total

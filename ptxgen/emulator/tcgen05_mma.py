"""tcgen05.mma: which instruction, and its effect on tensor memory.

Built from documents and CUTLASS; nothing here was run on a Blackwell GPU. Source: PTX ISA 9.0,
"tcgen05.mma"; CUTLASS 4.7, cute/atom/mma_traits_sm100.hpp; numerics from MMA-Sim, arXiv 2511.10909.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.accumulator_layout import Piece, accumulator_pieces, check_start_lane
from ptxgen.emulator.formats import f32_to_f16
from ptxgen.emulator.instruction_descriptor import (
    KINDS,
    InstructionDescriptor,
    check_shape,
    decode_instruction,
)
from ptxgen.emulator.matrix_descriptor import decode_sm100, operand_chunks
from ptxgen.emulator.numerics import fused_dot, fused_model
from ptxgen.emulator.numerics_blocks import block_scaled_dot
from ptxgen.emulator.products import product
from ptxgen.emulator.tcgen05_operands import (
    Cta,
    operand_from_smem,
    operand_from_tmem,
    scale_values,
)
from ptxgen.emulator.tmem import COLUMNS, lane_of
from ptxgen.emulator.zero_columns import zero_columns
from ptxgen.errors import EmulationError, UnknownInstructionError

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Tcgen05Mma:
    """One tcgen05.mma instruction, without its run-time operands."""

    kind: str
    cta_group: int
    ws: bool = False
    blocks: int = 0
    """Scales per row and instruction of the block-scaled kinds: 1, 2 or 4."""


@dataclass(frozen=True)
class MmaOperands:
    """Run-time operands of one issue, as register values."""

    d: int
    """Tensor memory address of the accumulator."""
    a: int
    """Matrix descriptor, or tensor memory address."""
    b: int
    """Matrix descriptor."""
    instruction: int
    """Instruction descriptor."""
    a_in_tmem: bool = False
    accumulate: bool = True
    """enable-input-d."""
    scale_d: int = 0
    """scale-input-d: D counts 2^-scale_d."""
    disabled_lanes: tuple[int, ...] = ()
    """4 words (8 for cta_group::2: leader's, then peer's): lanes that are not written."""
    scale_a: int = 0
    scale_b: int = 0
    """Tensor memory addresses of the scales."""
    zero_columns: int = 0
    """Zero-column mask descriptor of .ws."""


def parse_tcgen05_mma(qualifiers: Sequence[str]) -> Tcgen05Mma:
    """The instruction with these dot-separated `qualifiers` (tcgen05, mma may be missing).

    Raises: UnknownInstructionError for forms that do not exist or are not modelled (.sp, .ashift).
    """
    text = ".".join(qualifiers)
    names = set(qualifiers)
    kind = re.search(r"kind::(\w+)", text)
    group = re.search(r"cta_group::([12])", text)
    if kind is None or kind[1] not in KINDS or group is None:
        raise UnknownInstructionError(f"tcgen05.mma needs kind:: and cta_group::, got {text}")
    for unsupported in ("sp", "ashift"):
        if unsupported in names:
            raise UnknownInstructionError(f"tcgen05.mma.{unsupported} is not modelled yet: {text}")
    if kind[1].startswith("mx") != ("block_scale" in names):
        raise UnknownInstructionError(f"block_scale belongs to the mx kinds alone, got {text}")
    blocks = 0
    if kind[1].startswith("mx"):
        found = re.search(r"scale_vec::(\d)X|block(16|32)", text)
        if found is None:
            blocks = {"mxf8f6f4": 1, "mxf4": 2}.get(kind[1], 0)
        elif found[1]:
            blocks = int(found[1])
        else:
            blocks = 1 if kind[1] == "mxf8f6f4" else 64 // int(found[2])
        if blocks not in {"mxf8f6f4": (1,), "mxf4": (2,)}.get(kind[1], (2, 4)):
            raise UnknownInstructionError(f"this scale vector does not fit kind::{kind[1]}: {text}")
    if "ws" in names and (group[1] != "1" or blocks):
        raise UnknownInstructionError(f"tcgen05.mma.ws has no such form: {text}")
    return Tcgen05Mma(kind[1], int(group[1]), "ws" in names, blocks)


def execute_tcgen05_mma(
    op: Tcgen05Mma, operands: MmaOperands, ctas: Sequence[Cta], *, exact: bool = False
) -> None:
    """Multiply and accumulate into tensor memory.

    `ctas`: the issuing CTA, or for cta_group::2 both CTAs of the pair in rank order. `exact`
    follows the tensor core bit for bit, else float32 sums in BLAS order.
    Raises: EmulationError (descriptors, shapes, lanes), OutOfBoundsError.
    """
    d = decode_instruction(op.kind, operands.instruction)
    pieces = _check(op, operands, d, ctas)
    if operands.a_in_tmem:
        a = operand_from_tmem(d, operands.a, ctas, _a_lanes(d, pieces))
    else:
        a = operand_from_smem(d, decode_sm100(operands.a), ctas, True)
    b = operand_from_smem(d, decode_sm100(operands.b), ctas, False)
    if operands.zero_columns >> 39 & 1:
        b = np.where(zero_columns(operands.zero_columns, d.m, d.n)[:, None], b.dtype.type(0), b)
    a, b = -a if d.negate_a else a, -b if d.negate_b else b
    for piece in pieces:
        _accumulate(op, operands, d, a, b, piece, ctas[piece.cta], exact)


def accumulator_values(op: Tcgen05Mma, operands: MmaOperands, ctas: Sequence[Cta]) -> NDArray[Any]:
    """What the accumulator holds, as numbers: D, shape (m, n)."""
    d = decode_instruction(op.kind, operands.instruction)
    lane, column = lane_of(operands.d), operands.d & 0xFFFF
    found = np.empty((d.m, d.n), np.int32 if d.d_type == "s32" else np.float32)
    for piece in accumulator_pieces(d.m, d.n, op.cta_group, op.ws, d.sparse):
        columns = slice(column, column + _width(piece))
        words = ctas[piece.cta].tmem.cells[piece.lanes + lane, columns]
        if d.d_type == "f16":
            values: NDArray[Any] = (words & 0xFFFF).astype(np.uint16).view(np.float16)
        else:
            values = words.view(found.dtype)
        found[piece.rows, piece.columns] = values
    return found


def mma_k(op: Tcgen05Mma, operands: MmaOperands) -> int:
    """Elements along K: 32 bytes, 6- and 4-bit types in bytes unless the kind packs them."""
    if op.kind in ("mxf4", "mxf4nvf4"):
        return 64
    d = decode_instruction(op.kind, operands.instruction)
    return 32 // {"f16": 2, "bf16": 2, "tf32": 4}.get(d.a_type, 1)


def mma_cells(op: Tcgen05Mma, operands: MmaOperands, rank: int) -> NDArray[np.intp]:
    """Cells (lane * 512 + column) of the accumulator in the CTA of `rank` in the pair."""
    d = decode_instruction(op.kind, operands.instruction)
    lane, column = lane_of(operands.d), operands.d & 0xFFFF
    found = [
        _rectangle(p.lanes + lane, column, _width(p))
        for p in accumulator_pieces(d.m, d.n, op.cta_group, op.ws, d.sparse)
        if p.cta == rank
    ]
    return np.concatenate(found)


def mma_tmem_reads(op: Tcgen05Mma, operands: MmaOperands) -> NDArray[np.intp]:
    """Cells (lane * 512 + column) that each CTA's tensor memory is read at, beside the accumulator:
    A from tensor memory, and the scales."""
    d = decode_instruction(op.kind, operands.instruction)
    every = np.arange(128)
    found = [np.empty(0, np.intp)]
    if operands.a_in_tmem:
        lanes = accumulator_pieces(d.m, d.n, op.cta_group, op.ws, d.sparse)[0].lanes
        found.append(_rectangle(lanes + lane_of(operands.a), operands.a & 0xFFFF, 8))
    if op.blocks:
        for address, rows in ((operands.scale_a, d.m // op.cta_group), (operands.scale_b, d.n)):
            found.append(_rectangle(every, address & 0xFFFF, -(-rows // 32)))
    return np.concatenate(found)


def _rectangle(lanes: NDArray[np.intp], column: int, width: int) -> NDArray[np.intp]:
    return (lanes[:, None] * COLUMNS + column + np.arange(width)).ravel()


def mma_reads(op: Tcgen05Mma, operands: MmaOperands, cta: Cta) -> NDArray[np.int64]:
    """Offsets of the 16-byte pieces of one CTA's shared memory that the instruction reads.

    Raises: OutOfBoundsError.
    """
    d = decode_instruction(op.kind, operands.instruction)
    found = []
    for bits, rows, name, mn_major, used in (
        (operands.a, d.m, d.a_type, d.mn_major_a, not operands.a_in_tmem),
        (operands.b, d.n, d.b_type, d.mn_major_b, True),
    ):
        if used:
            size = {"f16": 2, "bf16": 2, "tf32": 4}.get(name, 1)
            found.append(
                operand_chunks(
                    decode_sm100(bits), cta.smem, rows // op.cta_group, 32 // size, size,
                    mn_major=mn_major,
                )
            )  # fmt: skip
    return np.concatenate(found) * 16


def _check(
    op: Tcgen05Mma, operands: MmaOperands, d: InstructionDescriptor, ctas: Sequence[Cta]
) -> tuple[Piece, ...]:
    if d.sparse or d.k96:
        raise UnknownInstructionError(
            "the instruction descriptor asks for "
            f"{'a sparse A' if d.sparse else 'K = 96'}, which is not modelled yet"
        )
    if len(ctas) != op.cta_group:
        raise EmulationError(
            f"tcgen05.mma.cta_group::{op.cta_group} needs {op.cta_group} CTA(s), got {len(ctas)}"
        )
    if operands.scale_d and op.kind not in ("f16", "tf32"):
        raise EmulationError(f"scale-input-d belongs to kinds f16 and tf32, got kind::{op.kind}")
    if operands.disabled_lanes and len(operands.disabled_lanes) != 4 * op.cta_group:
        raise EmulationError(
            f"disable-output-lane needs {4 * op.cta_group} words, "
            f"got {len(operands.disabled_lanes)}"
        )
    check_shape(d, op.cta_group, op.ws)
    pieces = accumulator_pieces(d.m, d.n, op.cta_group, op.ws, d.sparse)
    check_start_lane(pieces, lane_of(operands.d))
    column = operands.d & 0xFFFF
    for piece in pieces:
        ctas[piece.cta].tmem.require(
            column, column + _width(piece), "the accumulator of tcgen05.mma"
        )
    return pieces


def _width(piece: Piece) -> int:
    return int(piece.columns.stop - piece.columns.start)


def _a_lanes(d: InstructionDescriptor, pieces: tuple[Piece, ...]) -> NDArray[np.intp]:
    """Lanes of A's rows in one CTA: those of the accumulator rows, whose copies in further lanes
    (layouts B, E, G) hold the same."""
    return pieces[0].lanes


def _accumulate(
    op: Tcgen05Mma, operands: MmaOperands, d: InstructionDescriptor, a: Any, b: Any, piece: Piece,
    cta: Cta, exact: bool,
) -> None:  # fmt: skip
    lanes, column = piece.lanes + lane_of(operands.d), operands.d & 0xFFFF
    columns = slice(column, column + _width(piece))
    old = cta.tmem.cells[lanes, columns]
    left, right = a[piece.rows], b[piece.columns]
    if d.d_type == "s32":
        new = _integer(d, left, right, old, operands.accumulate)
    else:
        c = _addend(d, old, operands)
        if op.blocks:
            first_row = piece.rows.start - piece.cta * d.m // op.cta_group
            result = _scaled(
                op, operands, d, left, right, c, lanes, first_row, piece.columns, cta, exact
            )
        elif exact:
            model = fused_model("tcgen05", d.a_type, d.d_type)
            result = fused_dot(left, right, c, model, d.a_type, d.b_type)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                result = product(left, right) + c
        # an f16 accumulator sits in the low half of its word; the high half is not documented
        new = f32_to_f16(result).astype(np.uint32) if d.d_type == "f16" else result.view(np.uint32)
    written = np.ones(len(lanes), bool)
    if operands.disabled_lanes:
        words = np.array(operands.disabled_lanes[4 * piece.cta : 4 * piece.cta + 4], np.uint32)
        written = (words[lanes >> 5] >> (lanes & 31).astype(np.uint32) & 1) == 0
    cta.tmem.cells[lanes[written], columns] = new[written]
    if cta.tmem.initialised is not None:
        cta.tmem.initialised[lanes[written], columns] = True


def _addend(d: InstructionDescriptor, old: NDArray[np.uint32], operands: MmaOperands) -> F32:
    if not operands.accumulate:
        return np.zeros(old.shape, np.float32)
    if d.d_type == "f16":
        c = (old & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32)
    else:
        c = old.view(np.float32)
    return np.asarray(c * np.float32(2.0**-operands.scale_d)) if operands.scale_d else c


def _scaled(
    op: Tcgen05Mma, operands: MmaOperands, d: InstructionDescriptor, a: F32, b: F32, c: F32,
    lanes: NDArray[np.intp], first_row: int, columns: slice, cta: Cta, exact: bool,
) -> F32:  # fmt: skip
    """D of one piece. Every lane quarter reads its own copy of the scales."""
    rows = slice(first_row, first_row + len(lanes))
    scale_a = scale_values(
        cta.tmem, operands.scale_a, rows.stop, d.scale_a_id, op.blocks, d.scale_type
    )[:, rows]
    scale_b = scale_values(
        cta.tmem, operands.scale_b, d.n, d.scale_b_id, op.blocks, d.scale_type
    )[:, columns]  # fmt: skip
    quarters = lanes >> 5
    result = np.empty(c.shape, np.float32)
    of_rows = scale_a[quarters, np.arange(len(lanes))]
    used = np.unique(quarters)
    if all(np.array_equal(scale_b[q], scale_b[used[0]], equal_nan=True) for q in used):
        groups = [(used[0], slice(None))]
    else:
        groups = [(q, quarters == q) for q in used]
    for quarter, members in groups:
        result[members] = _scaled_dot(
            d, a[members], b, c[members], of_rows[members], scale_b[quarter], exact
        )
    return result


def _scaled_dot(
    d: InstructionDescriptor, a: F32, b: F32, c: F32, scale_a: F32, scale_b: F32, exact: bool
) -> F32:
    if d.kind != "mxf8f6f4":
        return block_scaled_dot(a, b, c, scale_a, scale_b, d.scale_type)
    if exact:
        model = fused_model("tcgen05", d.a_type, "f32")
        return fused_dot(a, b, c, model, d.a_type, d.b_type, scale_a[:, 0], scale_b[:, 0])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(product(a * scale_a, b * scale_b) + c)


def _integer(
    d: InstructionDescriptor, a: F32, b: F32, old: NDArray[np.uint32], accumulate: bool
) -> NDArray[np.uint32]:
    # |sum| <= 32 * 255 * 255 < 2^24, so float32 products and sums are exact
    total = product(a, b).astype(np.int64)
    if accumulate:
        total += old.view(np.int32)
    if d.saturate:
        np.clip(total, -(2**31), 2**31 - 1, out=total)
    return total.astype(np.uint32)

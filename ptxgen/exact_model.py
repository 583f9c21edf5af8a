"""The exact model: D bit for bit as a kernel computes it, for any rows and columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ptxgen.dtypes import dtype
from ptxgen.emulator.numerics import fused_dot, fused_model, mma_sync_fp8_sm90
from ptxgen.emulator.numerics_blocks import block_scaled_dot
from ptxgen.epilogue import Epilogue
from ptxgen.epilogue_reference import (
    activate,
    activation_error,
    add_terms,
    fused_multiply_add,
    source_columns,
)
from ptxgen.micro_kinds import MICRO_KINDS, micro_kind
from ptxgen.operands import Operands
from ptxgen.problem import BLOCK_SCALES, FP8, INTEGERS, MICRO_SCALES, PROMOTION_K, SCALE_BLOCK, Gemm
from ptxgen.quantize import cast, numpy_dtype

Array = np.ndarray[Any, Any]

MMA_K_BYTES = 32


def exact_result(
    problem: Gemm, operands: Operands, rows: Array, columns: Array, unit: str = "wgmma",
    k_parts: Sequence[tuple[int, int]] | None = None,
) -> Array:  # fmt: skip
    """D at the crossings of `rows` and `columns`, bit for bit as the kernel computes it.

    k_parts: the parts of K, as (first, past the last), that are summed on their own and then added
    in order; None = one part.

    unit: wgmma, tcgen05, mma (mma.sync on sm_90) or mma_native (mma.sync where FP8 is not made of
    f16); what ptxgen.kernels.unit_of says.

    Source: ptxgen.emulator.numerics; the order of K is ascending in every kernel.
    """
    values, _ = exact_values(problem, operands, rows, columns, unit, k_parts)
    return quantised(problem, values, operands.d_scale)


def quantised(problem: Gemm, values: Array, d_scale: Array | None) -> Array:
    """Values of D rounded to its dtype. d_scale: what D is to be multiplied with, broadcastable."""
    if problem.d == "s32":
        return values
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if d_scale is not None:
            values = values.astype(np.float32) * (np.float32(1) / d_scale)
        if dtype(problem.d).bytes == 1:
            return cast(values.astype(np.float32), problem.d)
        return np.asarray(values.astype(numpy_dtype(problem.d)))


def exact_values(
    problem: Gemm, operands: Operands, rows: Array, columns: Array, unit: str = "wgmma",
    k_parts: Sequence[tuple[int, int]] | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """(D before it is quantised, how far the kernel's may lie from it); arguments: `exact_result`.

    float32 and no distance, but for activations: float64, and what their approximations err by.
    """
    epilogue = problem.epilogue
    made = []
    for source in source_columns(epilogue, columns):
        sums = _exact_sums(problem, operands, rows, source, unit, k_parts)
        x = scaled(problem, sums, *_crossing_scales(problem, operands, rows, source))
        made.append(add_terms(epilogue, x, *_terms(operands, epilogue, rows, source)))
    if epilogue.is_exact:
        return made[0], np.zeros(made[0].shape)
    wide = [x.astype(np.float64) for x in made]
    values = activate(epilogue.activation, wide[0])
    slack = activation_error(epilogue.activation, wide[0], values)
    if epilogue.gated:
        values, slack = values * wide[1], slack * np.abs(wide[1])
    return values, slack


def scaled(problem: Gemm, sums: Array, scale_a: Array | None, scale_b: Array | None) -> Array:
    """Float32 sums times alpha and scales, with the kernels' own order of float32 operations.

    scale_a, scale_b: the vectors for the rows and columns of `sums` (one element each if tensor).
    """
    if problem.d == "s32":
        return sums
    alpha = np.float32(problem.alpha)
    with np.errstate(over="ignore", invalid="ignore"):
        if scale_a is None or problem.scale in BLOCK_SCALES:
            return np.asarray((sums * alpha).astype(np.float32))
        assert scale_a is not None
        assert scale_b is not None
        rows, columns = scale_a.astype(np.float32), scale_b.astype(np.float32)
        if problem.scale == "tensor":
            return np.asarray((sums * ((alpha * rows[0]) * columns[0])).astype(np.float32))
        return np.asarray(((sums * (rows * alpha)[:, None]) * columns[None, :]).astype(np.float32))


def _terms(
    operands: Operands, epilogue: Epilogue, rows: Array, columns: Array
) -> tuple[Array | None, Array | None]:
    """C and the bias at rows and columns of N."""
    c = None if operands.c is None else operands.c[np.ix_(rows, columns)]
    if operands.bias is None:
        return c, None
    return c, operands.bias[columns if epilogue.bias == "column" else rows]


def _exact_sums(
    problem: Gemm, operands: Operands, rows: Array, columns: Array, unit: str,
    k_parts: Sequence[tuple[int, int]] | None,
) -> Array:  # fmt: skip
    """Sums at the crossings, before alpha and the scales that are applied to them."""
    a, b = row_major(problem, operands)
    if problem.a in INTEGERS:
        integers = (a[rows].astype(np.float64) @ b[columns].astype(np.float64).T).astype(np.int32)
        return integers if problem.d == "s32" else integers.astype(np.float32)
    a, b = a[rows].astype(np.float32), b[columns].astype(np.float32)
    if problem.scale in MICRO_SCALES:
        return _micro_chain(problem, operands, a, b, rows, columns)
    total: Array = np.zeros((len(rows), len(columns)), np.float32)
    for number, (first, last) in enumerate(k_parts or [(0, problem.k)]):
        sums: Array = np.zeros_like(total)
        if problem.accumulate == "fast":
            sums = _chain(problem, a[:, first:last], b[:, first:last], sums, unit)
        else:
            for k in range(first, last, PROMOTION_K):
                block = slice(k, min(k + PROMOTION_K, last))
                part = _chain(problem, a[:, block], b[:, block], np.zeros_like(sums), unit)
                if problem.scale in BLOCK_SCALES:
                    scales = block_scales(problem, operands, k // SCALE_BLOCK, rows, columns)
                    sums = fused_multiply_add(part, scales[0][:, None] * scales[1][None, :], sums)
                else:
                    sums = sums + part
        total = total + sums if number else sums
    return total


def _crossing_scales(
    problem: Gemm, operands: Operands, rows: Array, columns: Array
) -> tuple[Array | None, Array | None]:
    """The vectors of scales for the given rows and columns of D."""
    scale_a, scale_b = operands.scale_a, operands.scale_b
    if problem.scale in MICRO_SCALES:
        return None, None  # the Tensor Core has applied them
    if problem.scale == "rowcol" and scale_a is not None and scale_b is not None:
        return scale_a[rows], scale_b[columns]
    return scale_a, scale_b


def block_scales(
    problem: Gemm, operands: Operands, block: int, rows: Array, columns: Array
) -> tuple[Array, Array]:
    """Float32 scales of one block of K, for the given rows and columns of D."""
    assert operands.scale_a is not None
    assert operands.scale_b is not None
    of_columns = columns // SCALE_BLOCK if problem.scale == "block" else columns
    found = operands.scale_a[rows, block], operands.scale_b[of_columns, block]
    return found[0].astype(np.float32), found[1].astype(np.float32)


def _chain(problem: Gemm, a: Array, b: Array, c: Array, unit: str) -> Array:
    step = MMA_K_BYTES // dtype(problem.a).bytes
    missing = -a.shape[1] % step
    if missing:
        a, b = (np.pad(x, ((0, 0), (0, missing))) for x in (a, b))
    if unit == "mma" and problem.a in FP8:
        for k in range(0, a.shape[1], step):
            c = mma_sync_fp8_sm90(a[:, k : k + step], b[:, k : k + step], c)
        return c
    model = fused_model(unit, problem.a, "f32")
    return fused_dot(a, b, c, model, problem.a, problem.b) if a.shape[1] else c


def _micro_chain(
    problem: Gemm, operands: Operands, a: Array, b: Array, rows: Array, columns: Array
) -> Array:
    """Sums of A [rows,K] and B [columns,K] with the scales that the Tensor Core applies.

    Two e2m1 are taken by the fp4 kinds, except for mx128, which only mxf8f6f4 has.
    """
    size, scale_type = MICRO_SCALES[problem.scale]
    fp4 = MICRO_KINDS[micro_kind(problem.a, problem.b, problem.scale)].is_fp4
    step = 2 * MMA_K_BYTES if fp4 else MMA_K_BYTES
    a, b = (np.pad(x, ((0, 0), (0, -problem.k % step))) for x in (a, b))
    blocks = -(-a.shape[1] // size)
    padding = 2.0**-127 if scale_type == "ue8m0" else 0.0
    scales = []
    for stored, taken in ((operands.scale_a, rows), (operands.scale_b, columns)):
        assert stored is not None
        values = stored[taken].astype(np.float32)
        missing = ((0, 0), (0, blocks - values.shape[1]))
        scales.append(np.pad(values, missing, constant_values=padding))
    c = np.zeros((len(rows), len(columns)), np.float32)
    model = fused_model("tcgen05", problem.a, "f32")
    for k in range(0, a.shape[1], step):
        part = slice(k, k + step)
        if fp4:
            block = slice(k // size, (k + step) // size)
            of_rows, of_columns = scales[0][:, block], scales[1][:, block]
            c = block_scaled_dot(a[:, part], b[:, part], c, of_rows, of_columns, scale_type)
        else:
            of_rows, of_columns = scales[0][:, k // size], scales[1][:, k // size]
            c = fused_dot(
                a[:, part], b[:, part], c, model, problem.a, problem.b, of_rows, of_columns
            )
    return c


def row_major(problem: Gemm, operands: Operands) -> tuple[Array, Array]:
    """A as [M,K] and B as [N,K]."""
    return (
        operands.a if problem.layout[0] == "n" else operands.a.T,
        operands.b if problem.layout[1] == "t" else operands.b.T,
    )

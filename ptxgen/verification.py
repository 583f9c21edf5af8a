"""Verification: is D right? Every element against its own bound, a sample bit for bit.

A worst-case bound alone is far too loose: at K = 8192 a third of zeroed outputs would pass it. So
three things are asked: elements of seeded rows and columns (every tile edge among them) equal the
bit-exact tensor-core model; all elements lie within 1/16 of the worst-case bound; and no 8 x 8
block has an RMS error far above the model's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.dtypes import dtype
from ptxgen.emulator.numerics import fused_dot, fused_model, mma_sync_fp8_sm90
from ptxgen.emulator.numerics_blocks import block_scaled_dot
from ptxgen.micro_kinds import MICRO_KINDS, micro_kind
from ptxgen.operands import Operands
from ptxgen.problem import BLOCK_SCALES, FP8, INTEGERS, MICRO_SCALES, PROMOTION_K, SCALE_BLOCK, Gemm
from ptxgen.quantize import numpy_dtype
from ptxgen.reference import micro_factors

Array = np.ndarray[Any, Any]

MMA_K_BYTES = 32
BOUND_SHARE = 1 / 16
"""Part of the worst-case accumulation bound that an element may use; where truncation adds up (data
of one sign) the exact model itself needs more, and then twice its need is allowed."""
BLOCK = 8
"""Rows and columns of the blocks whose RMS error is compared with the model's."""
BLOCK_RMS_FACTOR = 3.0
"""RMS error of a block over the model's RMS error. Over 64 elements it scatters by a tenth."""
SAMPLE = 48
"""Rows, and columns, whose crossings are computed with the exact model: 2304 elements."""
MAX_CHECKED_MACS = 1 << 37
"""Above this, only a sample of the rows is checked, so that the reference stays affordable."""


@dataclass(frozen=True)
class Verdict:
    """What verification found."""

    ok: bool
    max_error_over_bound: float
    """Largest error of an element over its own bound; at most 1 if right."""
    worst: tuple[int, int]
    """Row and column of that element."""
    worst_error: float
    worst_bound: float
    exact_elements: int
    """Elements compared bit for bit with the tensor-core model; 0 if not asked for."""
    exact_mismatches: int
    worst_block_rms: float
    """Largest RMS error of an 8 x 8 block over what it may be; at most 1 if right."""

    def __str__(self) -> str:
        row, column = self.worst
        text = (
            f"worst element ({row}, {column}): error {self.worst_error:.3g}, "
            f"bound {self.worst_bound:.3g}; worst 8 x 8 block at {self.worst_block_rms:.2f} of its "
            "allowed RMS error"
        )
        if self.exact_elements:
            text += (
                f"; {self.exact_mismatches} of {self.exact_elements} differ from the exact model"
            )
        return text


def finish(problem: Gemm, sums: Array, scale_a: Array | None, scale_b: Array | None) -> Array:
    """Float32 sums -> D, with the kernels' own order of float32 operations.

    scale_a, scale_b: the vectors for the rows and columns of `sums` (one element each if tensor).
    """
    if problem.d == "s32":
        return sums
    alpha = np.float32(problem.alpha)
    with np.errstate(over="ignore", invalid="ignore"):
        if scale_a is None or problem.scale in BLOCK_SCALES:
            scaled = sums * alpha
        else:
            assert scale_a is not None
            assert scale_b is not None
            rows, columns = scale_a.astype(np.float32), scale_b.astype(np.float32)
            if problem.scale == "tensor":
                scaled = sums * ((alpha * rows[0]) * columns[0])
            else:
                scaled = (sums * (rows * alpha)[:, None]) * columns[None, :]
        return np.asarray(scaled.astype(np.float32).astype(numpy_dtype(problem.d)))


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
    a, b = _row_major(problem, operands)
    if problem.a in INTEGERS:
        integers = (a[rows].astype(np.float64) @ b[columns].astype(np.float64).T).astype(np.int32)
        exact = integers if problem.d == "s32" else integers.astype(np.float32)
        return finish(problem, exact, *_crossing_scales(problem, operands, rows, columns))
    a, b = a[rows].astype(np.float32), b[columns].astype(np.float32)
    if problem.scale in MICRO_SCALES:
        return finish(problem, _micro_chain(problem, operands, a, b, rows, columns), None, None)
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
                    scales = _block_scales(problem, operands, k // SCALE_BLOCK, rows, columns)
                    sums = fused_multiply_add(part, scales[0][:, None] * scales[1][None, :], sums)
                else:
                    sums = sums + part
        total = total + sums if number else sums
    return finish(problem, total, *_crossing_scales(problem, operands, rows, columns))


def _crossing_scales(
    problem: Gemm, operands: Operands, rows: Array, columns: Array
) -> tuple[Array | None, Array | None]:
    """The vectors of scales for the given rows and columns of D."""
    scale_a, scale_b = operands.scale_a, operands.scale_b
    if problem.scale == "rowcol" and scale_a is not None and scale_b is not None:
        return scale_a[rows], scale_b[columns]
    return scale_a, scale_b


def _block_scales(
    problem: Gemm, operands: Operands, block: int, rows: Array, columns: Array
) -> tuple[Array, Array]:
    """Float32 scales of one block of K, for the given rows and columns of D."""
    assert operands.scale_a is not None
    assert operands.scale_b is not None
    of_columns = columns // SCALE_BLOCK if problem.scale == "block" else columns
    return operands.scale_a[rows, block], operands.scale_b[of_columns, block]


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float32 with one rounding.

    The product is exact in float64; the sum's rounding error decides ties by rounding to odd.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    rest = total - product
    error = (product - (total - rest)) + (addend - rest)
    bits = total.view(np.int64)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where((error != 0) & (bits % 2 == 0), bits + toward, bits).view(np.float64)
    return np.asarray(np.where(np.isfinite(total), odd, total).astype(np.float32))


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


def _row_major(problem: Gemm, operands: Operands) -> tuple[Array, Array]:
    """A as [M,K] and B as [N,K]."""
    return (
        operands.a if problem.layout[0] == "n" else operands.a.T,
        operands.b if problem.layout[1] == "t" else operands.b.T,
    )


def error_bound(problem: Gemm, magnitude: Array, result: Array, share: float = 1.0) -> Array:
    """Largest error that an element of D may have, float64, elementwise.

    share: part of the worst-case accumulation error that is allowed.

    magnitude: sum over k of |a b| times the scales; result: the float64 reference.
    Every fused sum of L products truncates L + 1 terms at the largest exponent, which is at most
    the magnitude's, and rounds once; promoted sums add float32 roundings.
    Source: the model of MMA-Sim, arXiv 2511.10909; derivation as above.
    """
    fraction = 13 if problem.a in FP8 else 25
    length = MMA_K_BYTES // dtype(problem.a).bytes
    per_step = (length + 1) * 2.0**-fraction + 2.0 ** -min(fraction, 23)
    steps = -(-problem.k // length)
    if problem.accumulate == "promoted":
        blocks = -(-problem.k // PROMOTION_K)
        accumulation = (PROMOTION_K // length) * per_step + blocks * 2.0**-23
    else:
        accumulation = steps * per_step
    rounding = 2.0 ** -(dtype(problem.d).mantissa_bits + 1) + 4 * 2.0**-24
    smallest = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "s32": 0.5}[problem.d]
    return np.asarray(
        share * accumulation * magnitude
        + rounding * (np.abs(result) + share * accumulation * magnitude)
        + smallest
    )


def verify(
    problem: Gemm,
    operands: Operands,
    d: Array,
    exact: bool = False,
    tile: tuple[int, int] = (64, 64),
    seed: int = 0,
    unit: str = "wgmma",
    k_parts: Sequence[tuple[int, int]] | None = None,
) -> Verdict:
    """Compare d, shape [M,N], with the reference.

    exact: also compare a sample bit for bit with the tensor-core model; right for results of a GPU
    and of the emulator's exact mode. tile: tile_m and tile_n, whose edges the sample includes.
    """
    if not problem.m or not problem.n:
        return Verdict(True, 0.0, (0, 0), 0.0, 0.0, 0, 0, 0.0)
    rng = np.random.default_rng(seed)
    rows = _sample(problem.m, tile[0], rng)
    columns = _sample(problem.n, tile[1], rng)
    checked = np.arange(problem.m)
    if problem.m * problem.n * max(problem.k, 1) > MAX_CHECKED_MACS:
        checked = rows
    a, b = (x.astype(np.float64) for x in _row_major(problem, operands))
    reference, magnitude = _reference(problem, operands, a[checked], b, checked)
    model = exact_result(problem, operands, rows, columns, unit, k_parts)
    crossing = np.ix_(np.searchsorted(checked, rows), columns)
    worst_case = error_bound(problem, magnitude[crossing], reference[crossing])
    with np.errstate(invalid="ignore"):
        used = np.abs(model.astype(np.float64) - reference[crossing]) / worst_case
    share = max(BOUND_SHARE, 2 * float(np.max(used[np.isfinite(used)], initial=0.0)))
    bound = error_bound(problem, magnitude, reference, min(share, 1.0))
    overflow = np.abs(reference) > dtype(problem.d).max_finite
    with np.errstate(invalid="ignore"):
        found = d[checked].astype(np.float64)
        error = np.abs(found - reference)
        largest = np.abs(found) >= dtype(problem.d).max_finite
    as_large = largest & (np.sign(found) == np.sign(reference))
    error = np.where(overflow, np.where(as_large, 0.0, np.inf), error)
    ratio = np.where(np.isfinite(error), error, np.inf) / bound
    place = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    mismatches = 0
    if exact:
        mismatches = int(np.count_nonzero(_bits(model) != _bits(d[np.ix_(rows, columns)])))
    rms = _worst_block(problem, error, magnitude, reference, model, rows, columns, checked)
    worst = (int(checked[place[0]]), int(place[1]))
    return Verdict(
        ok=bool(ratio[place] <= 1 and mismatches == 0 and rms <= 1),
        max_error_over_bound=float(ratio[place]),
        worst=worst,
        worst_error=float(error[place]),
        worst_bound=float(bound[place]),
        exact_elements=model.size if exact else 0,
        exact_mismatches=mismatches,
        worst_block_rms=rms,
    )


def _reference(
    problem: Gemm, operands: Operands, a: Array, b: Array, rows: Array
) -> tuple[Array, Array]:
    """D of `rows` in float64, and the same of magnitudes. a: those rows [rows,K]; b: [N,K]."""
    columns = np.arange(problem.n)
    if problem.scale in BLOCK_SCALES:
        result, magnitude = np.zeros((2, len(rows), problem.n))
        for block in range(problem.k_blocks):
            part = slice(block * SCALE_BLOCK, (block + 1) * SCALE_BLOCK)
            of_rows, of_columns = _block_scales(problem, operands, block, rows, columns)
            factor = of_rows.astype(np.float64)[:, None] * of_columns.astype(np.float64)[None, :]
            result += (a[:, part] @ b[:, part].T) * factor
            magnitude += (np.abs(a[:, part]) @ np.abs(b[:, part]).T) * np.abs(factor)
        return result * problem.alpha, magnitude * abs(problem.alpha)
    factor = np.full((1, 1), problem.alpha, np.float64)
    if problem.scale in MICRO_SCALES:
        a = a * micro_factors(problem, operands.scale_a)[rows]
        b = b * micro_factors(problem, operands.scale_b)
    elif problem.scale != "none":
        assert operands.scale_a is not None
        assert operands.scale_b is not None
        of_rows = operands.scale_a.astype(np.float64)
        of_rows = of_rows[rows] if problem.scale == "rowcol" else of_rows
        factor = factor * of_rows[:, None] * operands.scale_b.astype(np.float64)[None, :]
    return (a @ b.T) * factor, (np.abs(a) @ np.abs(b).T) * np.abs(factor)


def _sample(extent: int, tile: int, rng: np.random.Generator) -> Array:
    """Indices below `extent`: the edges of the first and last tiles, and random others."""
    edges = {0, extent - 1, tile - 1, tile, extent // tile * tile, extent // tile * tile - 1}
    kept = sorted(i for i in edges if 0 <= i < extent)
    others = rng.permutation(extent)[:SAMPLE]
    return np.asarray(sorted({*kept, *others.tolist()}))


def _bits(x: Array) -> Array:
    """Bit patterns, all NaNs alike."""
    patterns = np.ascontiguousarray(x).view({2: np.uint16, 4: np.uint32}[x.dtype.itemsize])
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(x.astype(np.float32)), patterns.dtype.type(0x7FC0), patterns)


def _worst_block(
    problem: Gemm, error: Array, magnitude: Array, reference: Array, model: Array,
    rows: Array, columns: Array, checked: Array,
) -> float:  # fmt: skip
    """Largest RMS of error / allowance over 8 x 8 blocks, over what the exact model reaches.

    The allowance of an element is its magnitude's share of accumulation error plus the rounding of
    D, so that elements of all sizes weigh alike.
    """
    rounding = 2.0 ** -(dtype(problem.d).mantissa_bits + 1) + 4 * 2.0**-24
    position = np.searchsorted(checked, rows)
    crossing = np.ix_(position, columns)
    model_error = np.abs(model.astype(np.float64) - reference[crossing])
    typical = np.maximum(magnitude, np.finfo(np.float64).tiny)
    share = model_error / typical[crossing]
    finite = share[np.isfinite(share)]
    typical_share = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    allowance = BLOCK_RMS_FACTOR * typical_share * typical + rounding * np.abs(reference)
    allowance = allowance + 2.0**-24 * typical + np.finfo(np.float64).tiny
    ratio = (np.where(np.isfinite(error), error, np.inf) / allowance) ** 2
    height, width = (-(-s // BLOCK) * BLOCK for s in ratio.shape)
    padded = np.zeros((height, width))
    padded[: ratio.shape[0], : ratio.shape[1]] = ratio
    inside = np.zeros((height, width))
    inside[: ratio.shape[0], : ratio.shape[1]] = 1
    shape = (height // BLOCK, BLOCK, width // BLOCK, BLOCK)
    mean = padded.reshape(shape).sum((1, 3)) / inside.reshape(shape).sum((1, 3))
    return float(np.sqrt(mean.max()))

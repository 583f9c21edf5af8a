"""Verification: is D right? Every element against its own bound, a sample bit for bit.

A worst-case bound alone is far too loose: at K = 8192 a third of zeroed outputs would pass it. So
three things are asked: elements of seeded rows and columns (every tile edge among them) equal the
bit-exact tensor-core model; all elements lie within 1/16 of the worst-case bound; and no 8 x 8
block has an RMS error far above the model's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.dtypes import dtype
from ptxgen.epilogue import D_SCALE_BLOCK
from ptxgen.epilogue_reference import GAIN, activate, activation_error, source_columns, values_of_d
from ptxgen.exact_model import MMA_K_BYTES, block_scales, exact_values, quantised, row_major
from ptxgen.operands import Operands
from ptxgen.problem import BLOCK_SCALES, FP8, MICRO_SCALES, PROMOTION_K, SCALE_BLOCK, Gemm
from ptxgen.reference import micro_factors

Array = np.ndarray[Any, Any]

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


def error_bound(
    problem: Gemm, magnitude: Array, result: Array, share: float = 1.0,
    extra: Array | float = 0.0, d_scale: Array | float = 1.0,
) -> Array:  # fmt: skip
    """Largest error that an element of D, times its scale, may have, float64, elementwise.

    share: part of the worst-case accumulation error that is allowed. extra: error of what follows
    the sums. d_scale: scale of each element of D.

    magnitude: sum over k of |a b| times the scales; result: the float64 reference.
    """
    error = share * accumulation_error(problem) * magnitude + extra
    rounding = 2.0 ** -(dtype(problem.d).mantissa_bits + 1) + 4 * 2.0**-24
    return np.asarray(error + rounding * (np.abs(result) + error) + SMALLEST[problem.d] * d_scale)


SMALLEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "s32": 0.5, "e4m3": 2.0**-10}
"""dtype of D -> error of rounding below its normal numbers."""


def accumulation_error(problem: Gemm) -> float:
    """Largest error of a sum, as a share of its magnitude.

    Every fused sum of L products truncates L + 1 terms at the largest exponent, which is at most
    the magnitude's, and rounds once; promoted sums add float32 roundings.
    Source: the model of MMA-Sim, arXiv 2511.10909; derivation as above.
    """
    fraction = 13 if problem.a in FP8 else 25
    length = MMA_K_BYTES // dtype(problem.a).bytes
    per_step = (length + 1) * 2.0**-fraction + 2.0 ** -min(fraction, 23)
    if problem.accumulate == "promoted":
        blocks = -(-problem.k // PROMOTION_K)
        return (PROMOTION_K // length) * per_step + blocks * 2.0**-23
    return -(-problem.k // length) * per_step


def verify(
    problem: Gemm,
    operands: Operands,
    d: Array,
    exact: bool = False,
    tile: tuple[int, int] = (64, 64),
    seed: int = 0,
    unit: str = "wgmma",
    k_parts: Sequence[tuple[int, int]] | None = None,
    d_scale: Array | None = None,
    amax: float | None = None,
    model_of: Callable[[Array, Array], Array] | None = None,
) -> Verdict:
    """Compare d, of D's shape, with the reference.

    exact: also compare a sample bit for bit with the tensor-core model (after an activation: within
    what its approximations err by); right for results of a GPU and of the emulator's exact mode.
    tile: tile_m and tile_n, whose edges the sample includes. d_scale: what the kernel wrote beside
    D, [M, ceil(columns / 128)]. amax: what it raised 0 to. model_of: the tensor-core model's D at
    the crossings of rows and columns, where not all of D has the same parts of K; no epilogue.
    """
    if 0 in problem.d_shape:
        return Verdict(True, 0.0, (0, 0), 0.0, 0.0, 0, 0, 0.0)
    rng = np.random.default_rng(seed)
    rows = _sample(problem.m, tile[0], rng)
    columns = _sample(problem.d_columns, tile[1], rng)
    checked = np.arange(problem.m)
    if problem.m * problem.n * max(problem.k, 1) > MAX_CHECKED_MACS:
        checked = rows
    a, b = (x.astype(np.float64) for x in row_major(problem, operands))
    sums, magnitude = _reference(problem, operands, a[checked], b, checked)
    reference, magnitude, extra = _follow(problem, operands, sums, magnitude, checked)
    steps = _steps(problem, operands, d_scale)
    crossing = np.ix_(np.searchsorted(checked, rows), columns)
    places = np.ix_(rows, columns)
    if model_of is None:
        values, slack = exact_values(problem, operands, rows, columns, unit, k_parts)
        scale = steps[places].astype(np.float32) if problem.epilogue.d_scale != "none" else None
        model_bits = quantised(problem, values, scale)
    else:
        model_bits = model_of(rows, columns)
        values, slack = model_bits.astype(np.float64), np.zeros(model_bits.shape)
    model = model_bits.astype(np.float64) * steps[places]
    worst_case = error_bound(
        problem, magnitude[crossing], reference[crossing], 1.0, extra[crossing], steps[places]
    )
    with np.errstate(invalid="ignore"):
        used = np.abs(model - reference[crossing]) / worst_case
    share = max(BOUND_SHARE, 2 * float(np.max(used[np.isfinite(used)], initial=0.0)))
    step = steps[checked]
    bound = error_bound(problem, magnitude, reference, min(share, 1.0), extra, step)
    overflow = np.abs(reference) > dtype(problem.d).max_finite * step
    with np.errstate(invalid="ignore"):
        found = d[checked].astype(np.float64) * step
        error = np.abs(found - reference)
        largest = np.abs(found) >= dtype(problem.d).max_finite * step
    as_large = largest & (np.sign(found) == np.sign(reference))
    error = np.where(overflow, np.where(as_large, 0.0, np.inf), error)
    ratio = np.where(np.isfinite(error), error, np.inf) / bound
    place = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    mismatches = 0
    if exact and problem.epilogue.is_exact:
        mismatches = int(np.count_nonzero(_bits(model_bits) != _bits(d[places])))
    elif exact:
        near = error_bound(problem, np.zeros(values.shape), values, 0.0, slack, steps[places])
        off = np.abs(d[places].astype(np.float64) * steps[places] - values)
        mismatches = int(np.count_nonzero(~(off <= near)))
    slack_of_d = extra + SMALLEST[problem.d] * step
    rms = _worst_block(
        problem, error, magnitude, reference, model, slack_of_d, rows, columns, checked
    )
    beside = _beside(problem, reference, bound, checked, d_scale, amax)
    worst = (int(checked[place[0]]), int(place[1]))
    return Verdict(
        ok=bool(ratio[place] <= 1 and mismatches == 0 and rms <= 1 and beside <= 1),
        max_error_over_bound=float(max(ratio[place], beside)),
        worst=worst,
        worst_error=float(error[place]),
        worst_bound=float(bound[place]),
        exact_elements=model.size if exact else 0,
        exact_mismatches=mismatches,
        worst_block_rms=rms,
    )


def _steps(problem: Gemm, operands: Operands, d_scale: Array | None) -> Array:
    """What each element of D is to be multiplied with, float64 [M, columns]."""
    if d_scale is not None:
        wide = np.repeat(d_scale.astype(np.float64), D_SCALE_BLOCK, axis=1)
        return wide[:, : problem.d_columns]
    one = 1.0 if operands.d_scale is None else float(operands.d_scale[0])
    return np.broadcast_to(np.float64(one), problem.d_shape)


def _follow(
    problem: Gemm, operands: Operands, sums: Array, magnitude: Array, rows: Array
) -> tuple[Array, Array, Array]:
    """(D of `rows` in float64, its magnitude, error of what follows the sums).

    magnitude: of the sums; then what their accumulation error is a share of once it reached D.
    """
    epilogue = problem.epilogue
    c = None if operands.c is None else operands.c[rows]
    bias = operands.bias
    if bias is not None and epilogue.bias == "row":
        bias = bias[rows]
    result = values_of_d(epilogue, sums, c, bias)
    if epilogue.is_exact and c is None and bias is None:
        return result, magnitude, np.zeros(result.shape)
    plain = replace(epilogue, activation="none")
    before = values_of_d(plain, sums, c, bias)
    size = magnitude
    if c is not None:
        size = size + np.abs(c.astype(np.float64) * epilogue.beta)
    if bias is not None:
        wide = np.abs(bias.astype(np.float64))
        size = size + (wide[None, :] if epilogue.bias == "column" else wide[:, None])
    rounding = 4 * 2.0**-24 * size
    gain = GAIN[epilogue.activation]
    if not epilogue.gated:
        own = activation_error(epilogue.activation, before, result)
        return result, gain * magnitude, gain * rounding + own
    gates, values = source_columns(epilogue, np.arange(problem.d_columns))
    opened = activate(epilogue.activation, before[:, gates])
    own = activation_error(epilogue.activation, before[:, gates], opened)
    # |u + e_u| (error of the gate) + |gate| (error of u)
    most = np.abs(before[:, values]) + accumulation_error(problem) * magnitude[:, values]
    reached = gain * most * magnitude[:, gates] + np.abs(opened) * magnitude[:, values]
    extra = most * (gain * rounding[:, gates] + own) + np.abs(opened) * rounding[:, values]
    return result, reached, extra


def _beside(
    problem: Gemm, reference: Array, bound: Array, checked: Array,
    d_scale: Array | None, amax: float | None,
) -> float:  # fmt: skip
    """Largest error of amax and of the scales that the kernel wrote, over what it may be."""
    worst = 0.0
    size = np.abs(reference)
    if amax is not None:
        low, high = float(np.max(size - bound)), float(np.max(size + bound))
        inside = low <= amax and (amax <= high or len(checked) < problem.m)
        worst = 0.0 if inside else np.inf
    if d_scale is not None:
        missing = ((0, 0), (0, -problem.d_columns % D_SCALE_BLOCK))
        shape = (len(checked), -1, D_SCALE_BLOCK)
        low, high = (np.pad(x, missing).reshape(shape).max(2) for x in (size - bound, size + bound))
        found = d_scale[checked].astype(np.float64) * dtype(problem.d).max_finite
        right = (low * (1 - 2.0**-22) <= found) & (found <= high * (1 + 2.0**-22))
        tiny = np.finfo(np.float32).smallest_normal * dtype(problem.d).max_finite
        right |= (low <= tiny) & (d_scale[checked] == 1)
        worst = worst if right.all() else np.inf
    return worst


def _reference(
    problem: Gemm, operands: Operands, a: Array, b: Array, rows: Array
) -> tuple[Array, Array]:
    """Scaled sums of `rows` in float64, and of magnitudes. a: those rows [rows,K]; b: [N,K]."""
    columns = np.arange(problem.n)
    if problem.scale in BLOCK_SCALES:
        result, magnitude = np.zeros((2, len(rows), problem.n))
        for block in range(problem.k_blocks):
            part = slice(block * SCALE_BLOCK, (block + 1) * SCALE_BLOCK)
            of_rows, of_columns = block_scales(problem, operands, block, rows, columns)
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
    patterns = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(x.astype(np.float32)), np.iinfo(patterns.dtype).max, patterns)


def _worst_block(
    problem: Gemm, error: Array, magnitude: Array, reference: Array, model: Array, extra: Array,
    rows: Array, columns: Array, checked: Array,
) -> float:  # fmt: skip
    """Largest RMS of error / allowance over 8 x 8 blocks, over what the exact model reaches.

    The allowance of an element is its magnitude's share of accumulation error plus the rounding of
    D, so that elements of all sizes weigh alike. extra: of what follows the sums, and of rounding
    below D's normal numbers.
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
    allowance = allowance + extra + 2.0**-24 * typical + np.finfo(np.float64).tiny
    ratio = (np.where(np.isfinite(error), error, np.inf) / allowance) ** 2
    height, width = (-(-s // BLOCK) * BLOCK for s in ratio.shape)
    padded = np.zeros((height, width))
    padded[: ratio.shape[0], : ratio.shape[1]] = ratio
    inside = np.zeros((height, width))
    inside[: ratio.shape[0], : ratio.shape[1]] = 1
    shape = (height // BLOCK, BLOCK, width // BLOCK, BLOCK)
    mean = padded.reshape(shape).sum((1, 3)) / inside.reshape(shape).sum((1, 3))
    return float(np.sqrt(mean.max()))

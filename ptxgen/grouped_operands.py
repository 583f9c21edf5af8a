"""Operands of grouped problems, made from a seed: rows that belong to no group hold NaN, as do all
gaps between rows and groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.errors import ArgumentError, not_one_of
from ptxgen.grouped_problem import GroupedGemm, group_starts
from ptxgen.operands import EXACT_SUM, KINDS, POISON, with_strides
from ptxgen.problem import FP8, SCALE_BLOCK
from ptxgen.quantize import cast, quantize_blocks, quantize_rows, quantize_tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GroupedOperands:
    """Inputs of a GroupedGemm, as views of storage whose gaps hold NaN."""

    a: Array
    """Shape a_shape, strides as the problem says."""
    b: Array
    scale_a: Array | None
    """float32 of scale_shape("scale_a"), or None without scales."""
    scale_b: Array | None
    sizes: Array | None
    """What the device reads: int32 or int64; None where the mode needs none."""
    c: Array | None
    """kgrouped: float32 of d_shape, what D holds before."""

    def contents(self) -> dict[str, Array]:
        """Bytes of the buffers of a launch by name, but for those that hold nothing yet."""
        arrays = {
            "a": self.a, "b": self.b, "sizes": self.sizes, "d": self.c,
            "scale_a": self.scale_a, "scale_b": self.scale_b,
        }  # fmt: skip
        return {name: storage_bytes(x) for name, x in arrays.items() if x is not None}


def device_sizes(problem: GroupedGemm, rows: Sequence[int]) -> Array | None:
    """The array of sizes that gives group g `rows[g]` rows (kgrouped: of K), packed from row 0 on.

    Groups start at multiples of the problem's alignment. kgrouped: a part of K lasts until the next
    one starts, so what fills it up to there must be zeros.

    Raises: ArgumentError if there is not one number per group, or they do not fit.
    """
    if len(rows) != problem.groups:
        raise ArgumentError(
            f"rows must hold {problem.groups} numbers, one per group, got {len(rows)}; "
            f"try groups={len(rows)}"
        )
    kind = np.int64 if problem.index_bits == 64 else np.int32
    if problem.mode == "batched":
        if any(r != problem.m for r in rows):
            raise ArgumentError(
                f"batched groups all have m={problem.m} rows, got {', '.join(map(str, rows))}; try "
                "mode=masked"
            )
        return None
    if problem.mode == "masked":
        return np.asarray(rows, kind)
    limit, what = (problem.k, "k") if problem.mode == "kgrouped" else (problem.m, "m")
    by_offsets = problem.mode == "contiguous" and problem.index == "offsets"
    starts, end = group_starts(rows, 1 if by_offsets else problem.alignment)
    if end > limit:
        raise ArgumentError(
            f"groups of {list(rows)} must end by {what}={limit}, got {end}; try {what}={end}"
        )
    if by_offsets or problem.mode == "kgrouped":
        return np.asarray([*starts, end], kind)
    if problem.index == "ends":
        return np.asarray([s + r for s, r in zip(starts, rows, strict=True)], kind)
    of_row = np.full(problem.m, -1, kind)
    for group, (start, count) in enumerate(zip(starts, rows, strict=True)):
        of_row[start : start + count] = group
    return of_row


def make_grouped_operands(
    problem: GroupedGemm, sizes: Array | None, kind: str = "random", seed: int = 0,
    rows: Sequence[int] | None = None,
) -> GroupedOperands:  # fmt: skip
    """Operands for `problem` and what the device reads as `sizes`.

    kind: as for `ptxgen.operands.make_operands`. rows: of each group, as for `device_sizes`;
    kgrouped: beyond them A and B are zero up to the next group. None = no group is filled up. Rows
    of A that belong to no group, and their scales, are NaN (kgrouped: of A and B, the columns).

    Raises: ArgumentError if `kind` is not one of those.
    """
    if kind not in KINDS:
        raise ArgumentError(not_one_of("data", kind, KINDS))
    rng = np.random.default_rng(seed)
    values = [_values(problem, getattr(problem, f"{operand}_shape"), kind, rng) for operand in "ab"]
    if problem.mode == "kgrouped" and rows is not None:
        for segment in problem.segments(sizes):
            end = segment.start + segment.length
            for x in values:
                x[..., segment.start + rows[segment.group] : end] = 0
    stored, scales = [], []
    for operand, x in zip("ab", values, strict=True):
        q, scale = _quantize(problem, operand, x, kind, rng)
        stored.append(q)
        scales.append(scale)
    _poison(problem, sizes, stored, scales)
    c = None
    if problem.mode == "kgrouped":
        c = rng.integers(-8, 9, problem.d_shape).astype(np.float32)
    scale_a, scale_b = (
        None if s is None else _scale_view(problem, name, s)
        for name, s in zip(("scale_a", "scale_b"), scales, strict=True)
    )
    a, b = (_strided(problem, operand, x) for operand, x in zip("ab", stored, strict=True))
    return GroupedOperands(a, b, scale_a, scale_b, sizes, c)


def _values(problem: GroupedGemm, shape: Sequence[int], kind: str, rng: Any) -> Array:
    if kind != "integers":
        x = rng.standard_normal(shape)
        return np.abs(x) if kind == "positive" else np.asarray(x)
    limit = EXACT_SUM[problem.a in FP8]
    largest = max((v for v in (2, 1) if v * v * problem.k < limit), default=1)
    x = rng.integers(-largest, largest + 1, shape)
    if problem.k >= limit:
        x[..., limit // 2 : problem.k - limit // 2 + 1] = 0
    return np.asarray(x)


def _quantize(
    problem: GroupedGemm, operand: str, x: Array, kind: str, rng: Any
) -> tuple[Array, Array | None]:
    """x of [matrices, rows, k] in the operand's dtype, and its scales of scale_shape."""
    name = getattr(problem, operand)
    shape = problem.scale_shape(f"scale_{operand}")
    if problem.scale == "none":
        return cast(x, name), None
    if kind == "integers":
        return cast(x, name), np.exp2(rng.integers(-1, 2, shape)).astype(np.float32)
    if problem.scale == "tensor":
        if operand == "a":
            return quantize_tensor(x, name)
        pairs = [quantize_tensor(matrix, name) for matrix in x]
        return np.stack([q for q, _ in pairs]), np.concatenate([s for _, s in pairs])
    if problem.scale == "rowcol":
        q, scale = quantize_rows(x.reshape(x.shape[0] * x.shape[1], x.shape[2]), name)
        return q.reshape(x.shape), scale.reshape(shape)
    if problem.mode == "kgrouped":
        # Blocks start anew with each group, so scales are drawn and not fitted.
        return cast(x, name), np.exp2(rng.uniform(-1, 1, shape)).astype(np.float32)
    rows = SCALE_BLOCK if problem.scale == "block" and operand == "b" else 1
    pairs = [quantize_blocks(matrix, name, rows) for matrix in x]
    return np.stack([q for q, _ in pairs]), np.stack([s for _, s in pairs])


def _poison(
    problem: GroupedGemm, sizes: Array | None, stored: list[Array], scales: list[Array | None]
) -> None:
    """Fill what belongs to no group with NaN, in place."""
    segments = list(problem.segments(sizes))
    if problem.mode == "kgrouped":
        used = np.zeros(problem.k, bool)
        for segment in segments:
            used[segment.start : segment.start + segment.length] = True
        for x in stored:
            x.view(np.uint8).reshape(*x.shape, x.itemsize)[:, :, ~used] = POISON
        return
    used = np.zeros(problem.a_shape[:2], bool)
    for segment in segments:
        matrix = segment.group if problem.a_groups > 1 else 0
        used[matrix, segment.start : segment.start + segment.length] = True
    row_bytes = problem.k * stored[0].itemsize
    stored[0].view(np.uint8).reshape(*problem.a_shape[:2], row_bytes)[~used] = POISON
    scale_a = scales[0]
    if scale_a is not None and problem.scale != "tensor":
        scale_a[~used] = np.nan


def _strided(problem: GroupedGemm, operand: str, x: Array) -> Array:
    """A view of poisoned storage with the problem's strides that holds x."""
    return with_strides(x, (problem.group_stride(operand), problem.stride(operand), 1))


def _scale_view(problem: GroupedGemm, name: str, x: Array) -> Array:
    strides: tuple[int, ...] = getattr(problem, f"{name}_strides")
    return with_strides(x, strides[: x.ndim] if problem.scale != "tensor" else strides[:1])


def storage_bytes(x: Array) -> Array:
    """The bytes under a view, from its first to past its last element, gaps included."""
    if not x.size:
        return np.empty(0, np.uint8)
    nbytes = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) + x.itemsize
    first = x[(slice(0, 1),) * x.ndim].reshape(-1).view(np.uint8)
    return np.lib.stride_tricks.as_strided(first, (nbytes,), (1,))

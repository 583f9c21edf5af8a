"""Operands: input data for a problem, made from a seed, with everything around it poisoned."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.errors import ArgumentError, not_one_of
from ptxgen.problem import BLOCK_SCALES, FP8, MICRO_SCALES, SCALE_BLOCK, Gemm
from ptxgen.quantize import (
    cast,
    numpy_dtype,
    quantize_blocks,
    quantize_micro,
    quantize_rows,
    quantize_tensor,
    scale_dtype,
)

Array = np.ndarray[Any, Any]

KINDS = ("integers", "random", "positive")
POISON = 0xFF
"""Byte that fills gaps between rows and outputs: NaN in every format we use."""
EXACT_SUM = {True: 1 << 13, False: 1 << 24}
"""Integer sums below this are exact in the tensor core, for FP8 inputs (True) and others."""


@dataclass(frozen=True)
class Operands:
    """Inputs of a Gemm. A and B are views of storage whose gaps hold NaN."""

    a: Array
    """Stored shape of A, row stride as the problem says."""
    b: Array
    scale_a: Array | None
    """float32 of the shape that the problem says, or None without scales. A matrix of block scales
    is a view with the problem's strides, but for ue8m0x4; what is packed in memory is not here."""
    scale_b: Array | None
    c: Array | None = None
    """C as the epilogue says, a view whose gaps hold NaN; or None."""
    bias: Array | None = None
    d_scale: Array | None = None
    """float32 [1], if one scale of D is given."""


def make_operands(problem: Gemm, kind: str = "random", seed: int = 0) -> Operands:
    """Operands for `problem`, the same for the same arguments.

    kind: integers - small integers whose every partial sum is exact in every accumulator, scales
    powers of two, so that results compare bitwise; random - normal numbers, quantised as the
    problem's scales say; positive - magnitudes of those, the worst case for accumulation.

    Raises: ArgumentError if `kind` is not one of these.
    """
    if kind not in KINDS:
        raise ArgumentError(not_one_of("data", kind, KINDS))
    rng = np.random.default_rng(seed)
    if kind == "integers":
        return _with_epilogue(problem, _integers(problem, rng), rng, kind)
    values = [rng.standard_normal((rows, problem.k)) for rows in (problem.m, problem.n)]
    if kind == "positive":
        values = [np.abs(v) for v in values]
    stored, scales = [], []
    for operand, x in zip(("a", "b"), values, strict=True):
        name = getattr(problem, operand)
        if problem.scale in BLOCK_SCALES:
            wide = problem.scale == "block" and operand == "b"
            powers = "f32" if problem.scale_format == "f32" else "ue8m0"
            q, scale = quantize_blocks(x, name, SCALE_BLOCK if wide else 1, scale_name=powers)
        elif problem.scale in MICRO_SCALES:
            q, scale = quantize_micro(x, name, *MICRO_SCALES[problem.scale])
        elif problem.scale == "tensor":
            q, scale = quantize_tensor(x, name)
        elif problem.scale == "rowcol":
            q, scale = quantize_rows(x, name)
        else:
            q, scale = cast(x, name), None
        stored.append(q)
        scales.append(scale)
    operands = _place(problem, stored[0], stored[1], scales[0], scales[1])
    return _with_epilogue(problem, operands, rng, kind)


def _with_epilogue(
    problem: Gemm, operands: Operands, rng: np.random.Generator, kind: str
) -> Operands:
    """The operands, and what the epilogue reads, of values like those of the sums."""
    epilogue = problem.epilogue

    def values(shape: tuple[int, ...], name: str) -> Array:
        if kind == "integers":
            return rng.integers(-8, 9, shape).astype(numpy_dtype(name))
        spread = math.sqrt(max(problem.k, 1)) * abs(problem.alpha)
        x = rng.standard_normal(shape) * spread
        return cast(np.abs(x) if kind == "positive" else x, name)

    c = bias = d_scale = None
    if epilogue.c != "none":
        c = _strided(values(problem.c_shape, epilogue.c), problem.stride("c"))
    if epilogue.bias != "none":
        bias = values((problem.bias_length,), epilogue.bias_dtype)
    if epilogue.d_scale == "tensor":
        size = math.sqrt(max(problem.k, 1)) * abs(problem.alpha) / 64
        d_scale = np.asarray([2.0 if kind == "integers" else max(size, 2**-20)], np.float32)
    return replace(operands, c=c, bias=bias, d_scale=d_scale)


def _integers(problem: Gemm, rng: np.random.Generator) -> Operands:
    limit = EXACT_SUM[problem.a in FP8]
    largest = max((v for v in (2, 1) if v * v * problem.k < limit), default=1)
    a = rng.integers(-largest, largest + 1, (problem.m, problem.k))
    b = rng.integers(-largest, largest + 1, (problem.n, problem.k))
    if problem.k >= limit:
        # More k than unit products may be summed: zero all but the first and last of them.
        a[:, limit // 2 : problem.k - limit // 2 + 1] = 0
    scales = [
        np.exp2(rng.integers(-1, 2, shape)).astype(_scale_dtype(problem))
        if problem.scale != "none"
        else None
        for shape in (problem.scale_a_shape, problem.scale_b_shape)
    ]
    return _place(
        problem,
        a.astype(numpy_dtype(problem.a)),
        b.astype(numpy_dtype(problem.b)),
        scales[0],
        scales[1],
    )


def _scale_dtype(problem: Gemm) -> "np.dtype[Any]":
    if problem.scale in MICRO_SCALES:
        return scale_dtype(MICRO_SCALES[problem.scale][1])
    if problem.scale_format != "f32":
        return scale_dtype("ue8m0")
    return np.dtype(np.float32)


def _place(
    problem: Gemm, a: Array, b: Array, scale_a: Array | None, scale_b: Array | None
) -> Operands:
    """Put [M,K] and [N,K] values into their stored layouts and strides."""
    a = a if problem.layout[0] == "n" else a.T
    b = b if problem.layout[1] == "t" else b.T
    strided = problem.scale in BLOCK_SCALES and problem.scale_format != "ue8m0x4"
    if strided and scale_a is not None and scale_b is not None:
        scale_a = with_strides(scale_a, problem.scale_a_strides)
        scale_b = with_strides(scale_b, problem.scale_b_strides)
    return Operands(
        _strided(a, problem.stride("a")), _strided(b, problem.stride("b")), scale_a, scale_b
    )


def with_strides(x: Array, strides: Sequence[int]) -> Array:
    """A view of poisoned storage that holds x with the given strides, in elements."""
    if 0 in x.shape:
        return x
    length = sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True)) + 1
    storage = poisoned((length,), x.dtype)
    steps = tuple(s * x.dtype.itemsize for s in strides)
    view: Array = np.ndarray(x.shape, x.dtype, storage, strides=steps)
    view[...] = x
    return view


def _strided(x: Array, stride: int) -> Array:
    storage = poisoned((x.shape[0], stride), x.dtype)
    view = storage[:, : x.shape[1]]
    view[...] = x
    return view


def poisoned(shape: tuple[int, ...], kind: Any) -> Array:
    """A C-contiguous array whose every byte is POISON."""
    kind = np.dtype(kind)
    storage = np.full((*shape[:-1], shape[-1] * kind.itemsize), POISON, np.uint8)
    return storage.view(kind)

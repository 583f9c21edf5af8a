"""Quantisation on the host: casts to narrow formats, and the scales that undo them.

A scale is what the stored value must be multiplied with: x is about q * scale.
"""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import ml_dtypes
import numpy as np

from ptxgen.dtypes import dtype
from ptxgen.epilogue import GATE_COLUMNS
from ptxgen.errors import ArgumentError, not_one_of

Array = np.ndarray[Any, Any]


def numpy_dtype(name: str) -> "np.dtype[Any]":
    """The numpy dtype of our dtype `name` (ml_dtypes for those that numpy lacks)."""
    return np.dtype(getattr(ml_dtypes, dtype(name).numpy_name, dtype(name).numpy_name))


def cast(x: Array, name: str) -> Array:
    """x rounded to nearest-even in dtype `name`, magnitudes above its largest value saturated.

    NaN stays NaN.

    Raises: ArgumentError if x is no array of real numbers; ProblemError if there is no such dtype.
    """
    x = _array(x)
    limit = dtype(name).max_finite
    kind = numpy_dtype(name)
    if kind.kind in "iu":
        return np.clip(np.rint(x), np.iinfo(kind).min, limit).astype(kind)
    rounded = np.clip(x, -limit, limit).astype(kind)
    return _round_to_tf32(rounded) if name == "tf32" else rounded


def _round_to_tf32(x: Array) -> Array:
    """float32 values whose 13 lowest bits are zero, rounded to nearest-even; NaN stays NaN."""
    bits = x.view(np.uint32)
    rounded = (bits + 0xFFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


def quantize_tensor(x: Array, name: str) -> tuple[Array, Array]:
    """x of any shape -> (q of dtype `name`, one float32 scale, shape [1]).

    The largest magnitude of x becomes the largest of a format of up to 8 bits, and 1 in 16-bit
    formats (their range is wide enough, and products of their largest values overflow). A zero x
    gets scale 1.

    Raises: ArgumentError if x is no array of real numbers, or holds NaN or infinity; ProblemError
    if there is no dtype `name`.
    """
    x = _array(x)
    scale = _scale(np.max(np.abs(x), initial=0.0), name)
    return cast(np.asarray(x, np.float64) / scale, name), scale.reshape(1).astype(np.float32)


def quantize_rows(x: Array, name: str) -> tuple[Array, Array]:
    """x of shape [rows, k] -> (q of dtype `name`, float32 scales of shape [rows]).

    Raises: ArgumentError if x is no matrix of real numbers, or holds NaN or infinity, or is too
    large for scales of float32; ProblemError if there is no dtype `name`.
    """
    x = _matrix(x)
    scale = _scale(np.max(np.abs(x), axis=1, initial=0.0), name)
    return cast(np.asarray(x, np.float64) / scale[:, None], name), scale.astype(np.float32)


def quantize_blocks(
    x: Array, name: str, rows_per_scale: int = 1, k_per_scale: int = 128, scale_name: str = "f32"
) -> tuple[Array, Array]:
    """x of shape [rows, k] -> (q of dtype `name`, scales, one per block: float32, or ue8m0).

    Scales have shape [ceil(rows / rows_per_scale), ceil(k / k_per_scale)]: 1 x 128 blocks for
    activations, 128 x 128 for weights. A zero block gets scale 1.

    Raises: ArgumentError if x is no matrix of real numbers, or holds NaN or infinity, or blocks
    have no size or their scales no format; ProblemError if there is no dtype `name`.
    """
    x = _matrix(x)
    _check_blocks(scale_name, ("f32", "ue8m0"), rows_per_scale, k_per_scale)
    rows, k = x.shape
    missing = (-rows % rows_per_scale, -k % k_per_scale)
    padded = np.pad(np.abs(x), ((0, missing[0]), (0, missing[1])))
    blocks = padded.reshape(
        padded.shape[0] // rows_per_scale,
        rows_per_scale,
        padded.shape[1] // k_per_scale,
        k_per_scale,
    )
    scale = _scale(blocks.max(axis=(1, 3), initial=0.0), name)
    kind: np.dtype[Any] = np.dtype(np.float32)
    if scale_name == "ue8m0":
        scale, kind = _power_above(scale), scale_dtype(scale_name)
    full = scale.repeat(rows_per_scale, 0).repeat(k_per_scale, 1)[:rows, :k]
    return cast(np.asarray(x, np.float64) / full, name), scale.astype(kind)


def _power_above(scale: Array) -> Array:
    """The least powers of two that are no smaller, within UE8M0."""
    return np.asarray(np.exp2(np.clip(np.ceil(np.log2(scale)), -127, 127)))


def interleave_halves(gates: Array, values: Array) -> Array:
    """Rows of two matrices [n, k] of one shape, 8 of the gates and 8 of the values in turns: the B
    [2n, k] of a GEMM whose epilogue is swiglu. n must be a multiple of 8.

    Raises: ArgumentError.
    """
    gates, values = _array(gates), _array(values)
    if gates.shape != values.shape or gates.ndim != 2 or gates.shape[0] % GATE_COLUMNS:
        raise ArgumentError(
            f"gates and values must be matrices of one shape [n, k], n a multiple of "
            f"{GATE_COLUMNS}, got {gates.shape} and {values.shape}; try zeros appended"
        )
    k = gates.shape[1]
    turns = [x.reshape(-1, 1, GATE_COLUMNS, k) for x in (gates, values)]
    return np.concatenate(turns, axis=1).reshape(-1, k)


SCALE_FORMATS = {"ue8m0": "float8_e8m0fnu", "ue4m3": "float8_e4m3fn"}
"""Format of a micro scale -> its numpy dtype; ue4m3 is an e4m3 that is never negative."""


def scale_dtype(name: str) -> "np.dtype[Any]":
    """The numpy dtype of a micro scale format."""
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, SCALE_FORMATS[name]))
    return found


def quantize_micro(x: Array, name: str, k_per_scale: int, scale_name: str) -> tuple[Array, Array]:
    """x of shape [rows, k] -> (q of dtype `name`, scales [rows, ceil(k / k_per_scale)]).

    scale_name: ue8m0 - the power of two above amax / largest, so that nothing saturates; ue4m3 -
    amax / largest, rounded. A zero block gets scale 1.

    Raises: ArgumentError if x is no matrix of real numbers, or holds NaN or infinity, or blocks
    have no size or their scales no format; ProblemError if there is no dtype `name`.
    """
    x = _matrix(x)
    _check_blocks(scale_name, SCALE_FORMATS, k_per_scale)
    rows, k = x.shape
    padded = np.pad(np.abs(x), ((0, 0), (0, -k % k_per_scale)))
    blocks = padded.reshape(rows, padded.shape[1] // k_per_scale, k_per_scale)
    wanted = _scale(blocks.max(axis=2, initial=0.0), name)
    kind = scale_dtype(scale_name)
    if scale_name == "ue8m0":
        wanted = _power_above(wanted)
    scales = np.clip(wanted, None, 448.0 if scale_name == "ue4m3" else None).astype(kind)
    scales = np.where(scales.astype(np.float64) > 0, scales, np.asarray(1.0, kind))
    full = scales.astype(np.float64).repeat(k_per_scale, 1)[:, :k]
    return cast(np.asarray(x, np.float64) / full, name), scales


def _array(x: Any) -> Array:
    try:
        array = np.asarray(x)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"quantisation needs an array on the host, got {type(x).__name__}: {error}; try "
            "x.get() of CuPy, x.cpu() of torch"
        ) from error
    if array.dtype.kind not in "fiub" and not hasattr(ml_dtypes, array.dtype.name):
        raise ArgumentError(
            f"quantisation needs real numbers, got dtype {array.dtype}; try "
            "numpy.asarray(x, numpy.float32)"
        )
    return array


def _matrix(x: Any) -> Array:
    matrix = _array(x)
    if matrix.ndim != 2:
        raise ArgumentError(
            f"quantisation by rows or blocks needs [rows, k], got {matrix.shape}; try reshape"
        )
    return matrix


def _check_blocks(scale_name: str, formats: Iterable[str], *sizes: Any) -> None:
    """Raises: ArgumentError if a block has no size, or scales have another format."""
    if scale_name not in formats:
        raise ArgumentError(not_one_of("scale_name", scale_name, formats))
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
            raise ArgumentError(
                f"blocks must have whole numbers of rows and of k, 1 or more, got {size!r}; try "
                "rows_per_scale=1, k_per_scale=128"
            )


def _scale(amax: Any, name: str) -> Array:
    """float64 scales that are exact in float32 and never zero, so that q never becomes 0 / 0."""
    if not np.all(np.isfinite(amax)):
        raise ArgumentError("quantisation needs finite values, got NaN or infinity; try nan_to_num")
    largest = dtype(name).max_finite if dtype(name).bits <= 8 else 1.0
    wanted = np.asarray(amax, np.float64) / largest
    limit = float(np.finfo(np.float32).max)
    if np.any(wanted > limit):
        raise ArgumentError(
            f"quantisation to {name} needs scales of float32, at most {limit:.8g}, got "
            f"{np.max(wanted):.3g} for a magnitude of {np.max(amax):.3g}; try smaller values"
        )
    scale = wanted.astype(np.float32)
    smallest = np.finfo(np.float32).smallest_normal
    usable = np.where(scale >= smallest, scale, np.float32(1.0))
    return np.asarray(usable, np.float64)

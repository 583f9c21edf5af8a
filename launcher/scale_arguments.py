"""Checks of scale_a and scale_b of `gemm`: which kind of scale they are, and whether they fit."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.errors import ArgumentError
from ptxgen.launcher.arrays import Operand, as_operand
from ptxgen.launcher.gemm_arguments import check_address, check_name, real_number
from ptxgen.problem import BLOCK_SCALES, SCALE_BLOCK

KINDS = ("none", "tensor", "rowcol", *BLOCK_SCALES)
"""Scales that arrays are taken for; the others of a Gemm have packed bytes."""
MAX_STRIDE_BYTES = (1 << 32) - 1
"""Strides of scale matrices are 32-bit parameters of the kernels."""
_F32_BYTES = 4
_FORMATS = {
    "f32": "f32", **dict.fromkeys(("uint8", "u8", "float8_e8m0fnu"), "ue8m0"),
    **dict.fromkeys(("int32", "s32", "uint32"), "ue8m0x4"),
}  # fmt: skip
"""dtype of an array of scales -> what a Gemm calls its format. Integers hold exponents."""


@dataclass(frozen=True)
class Scales:
    """What scale_a and scale_b come down to."""

    kind: str
    """One of KINDS."""
    factor: float
    """Product of the scales that are plain numbers; it goes into alpha."""
    a: Operand | None = None
    """A contiguous vector of float32, or a matrix of block or group scales."""
    b: Operand | None = None
    format: str = "f32"
    """Of block or group scales, as `Gemm.scale_format`."""

    def strides(self, operand: str) -> tuple[int, int]:
        """Elements from one row of scale_a or scale_b to the next and from one block of K to the
        next, in device memory; (0, 0) for vectors, and for what is copied to dense rows."""
        x = self.a if operand == "a" else self.b
        if self.kind not in BLOCK_SCALES or x is None or x.host is not None or not x.size:
            return 0, 0
        row, k = x.strides_bytes
        return row // x.itemsize, k // x.itemsize


def read_scales(
    scale_a: Any, scale_b: Any, sizes: tuple[int, int, int], stream: int, scale: str | None = None
) -> Scales:
    """Scales of a problem of `sizes` (M, N, K), of the kind `scale`, or that their shapes fit.

    Numbers become a factor. Where shapes fit two kinds, both mean the same.

    Raises: ArgumentError.
    """
    if scale is not None:
        check_name("scale:", scale, KINDS)
    given = (("scale_a", scale_a), ("scale_b", scale_b))
    factor = math.prod(real_number(name, x) for name, x in given if _is_number(x))
    arrays = {
        name: as_operand(x, name, stream)
        for name, x in given
        if x is not None and not _is_number(x)
    }
    if len(arrays) == 1:
        (name,) = arrays
        other = "scale_b" if name == "scale_a" else "scale_a"
        raise ArgumentError(
            f"{name} is an array and {other} is not; must be both arrays, both numbers, or both"
            f" None; try an array of ones for {other}"
        )
    if bool(arrays) == (scale == "none") and scale is not None:
        must = "no arrays" if arrays else "an array each"
        raise ArgumentError(f"scale={scale} takes {must} for scale_a and scale_b; try scale=None")
    if not arrays:
        return Scales("none", factor)
    for name, x in arrays.items():
        _check_element(x, name)
    a, b = arrays["scale_a"], arrays["scale_b"]
    form = _FORMATS[a.dtype]
    if form != _FORMATS[b.dtype]:
        raise ArgumentError(
            f"scale_a of {a.dtype} and scale_b of {b.dtype} must be of one format; try float32 both"
        )
    kind = scale or _fitting_kind(a, b, sizes, form)
    if kind in BLOCK_SCALES:
        expected = _matrix_shapes(kind, sizes, form)
        for name, x, shape in zip(arrays, (a, b), expected, strict=True):
            _check_matrix(x, name, kind, shape)
        return Scales(kind, factor, a, b, form)
    if form != "f32":
        raise ArgumentError(
            f"scale_a: dtype must be f32 for scale={kind}, got {a.dtype}: exponents are taken for"
            f" {' and '.join(BLOCK_SCALES)}; try scale_a.astype(numpy.float32)"
        )
    lengths = (1, 1) if kind == "tensor" else sizes[:2]
    for name, x, letter, length in zip(arrays, (a, b), "MN", lengths, strict=True):
        _check_vector(x, name, letter, length, kind)
    return Scales(kind, factor, a, b)


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, np.floating, np.integer)) and not isinstance(x, bool)


def _matrix_shapes(
    kind: str, sizes: tuple[int, int, int], form: str = "f32"
) -> Iterable[tuple[int, int]]:
    """Shapes of scale_a and scale_b for block or group scales of a format."""
    m, n, k = sizes
    k_blocks = -(-k // (SCALE_BLOCK * (4 if form == "ue8m0x4" else 1)))
    return (m, k_blocks), (-(-n // SCALE_BLOCK) if kind == "block" else n, k_blocks)


def _is_vector(x: Operand) -> bool:
    return sum(extent != 1 for extent in x.shape) <= 1


def _fitting_kind(a: Operand, b: Operand, sizes: tuple[int, int, int], form: str) -> str:
    """The first kind that the shapes fit. Vectors that fit none are rowcol of a wrong length."""
    if a.size == b.size == 1:
        return "tensor"
    vectors = _is_vector(a) and _is_vector(b)
    if vectors and (a.size, b.size) == sizes[:2]:
        return "rowcol"
    shapes = {kind: tuple(_matrix_shapes(kind, sizes, form)) for kind in BLOCK_SCALES}
    for kind, expected in shapes.items():
        if (a.shape, b.shape) == expected:
            return kind
    if vectors and 2 not in (len(a.shape), len(b.shape)):
        return "rowcol"
    m, n, k = sizes
    matrices = " or ".join(f"{x} and {y} ({kind})" for kind, (x, y) in shapes.items())
    raise ArgumentError(
        f"scale_a of shape {a.shape} and scale_b of shape {b.shape} fit no kind of scale for"
        f" M={m}, N={n}, K={k}: must be one element each (tensor), ({m},) and ({n},) (rowcol), or"
        f" {matrices}; try ptxgen.quantize, which makes them"
    )


def _check_element(x: Operand, name: str) -> None:
    if x.dtype not in _FORMATS:
        raise ArgumentError(
            f"{name}: dtype must be f32 (block and group: or uint8, int32 of exponents), got"
            f" {x.dtype}; try {name}.astype(numpy.float32)"
        )
    check_address(x, name)


def _check_vector(x: Operand, name: str, letter: str, length: int, kind: str) -> None:
    if not _is_vector(x):
        raise ArgumentError(
            f"{name}: must be a vector for scale={kind}, got shape {x.shape}; try ravel()"
        )
    if x.size != length:
        must = "1 element" if kind == "tensor" else f"{letter}={length} elements"
        other = "" if kind == "tensor" else " (or both scales one)"
        raise ArgumentError(
            f"{name}: must have {must}{other}, got shape {x.shape}; try reshape, or another scale"
        )
    steps = [s for n, s in zip(x.shape, x.strides_bytes, strict=True) if n != 1]
    if x.size > 1 and steps != [_F32_BYTES]:
        raise ArgumentError(
            f"{name}: must be contiguous, got a stride of {steps[0]} bytes; try a copy"
        )


def _check_matrix(x: Operand, name: str, kind: str, expected: tuple[int, int]) -> None:
    if x.shape != expected:
        rows = {"scale_a": "M", "scale_b": f"ceil(N/{SCALE_BLOCK})" if kind == "block" else "N"}
        hint = f"{name}.T" if x.shape == expected[::-1] else "another scale, or quantize_blocks"
        per_element = SCALE_BLOCK * (4 if _FORMATS[x.dtype] == "ue8m0x4" else 1)
        raise ArgumentError(
            f"{name}: must have shape [{rows[name]}, ceil(K/{per_element})] = {expected} for"
            f" scale={kind}, got {x.shape}; try {hint}"
        )
    for axis, (extent, stride) in enumerate(zip(x.shape, x.strides_bytes, strict=True)):
        # a step over four blocks of exponents is a 32-bit parameter, too
        most = MAX_STRIDE_BYTES if x.dtype == "f32" else MAX_STRIDE_BYTES // 4
        if extent > 1 and (stride <= 0 or stride % x.itemsize or stride > most):
            raise ArgumentError(
                f"{name}: stride of axis {axis} must be a positive multiple of {x.itemsize} bytes,"
                f" at most {most}, got {stride} bytes; try a copy"
            )

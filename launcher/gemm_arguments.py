"""Checks of the arguments of `gemm`: what each array must be, said with its name and numbers."""

from collections.abc import Collection
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from ptxgen.dtypes import DTYPES
from ptxgen.errors import ArgumentError, is_one_of, not_one_of
from ptxgen.launcher.arrays import Operand, overlaps

TMA_ALIGNMENT = 16
"""Bytes that TMA asks of base addresses and row strides: host arrays are copied to rows padded to
it, so that the fast kernels serve them. Source: CUDA driver API, cuTensorMapEncodeTiled."""
MAX_ALIGNMENT = 256
"""Alignment of our allocations, and the largest that a problem states."""
_OUTPUTS = ("bf16", "f16", "f32", "s32", "e4m3")


@dataclass(frozen=True)
class Matrix:
    """A two-dimensional operand with contiguous rows, as a kernel reads it."""

    operand: Operand
    rows: int
    columns: int
    stride: int
    """Elements from one row to the next in device memory; for host arrays, of the staged copy."""
    alignment: int
    """Largest power of two, up to MAX_ALIGNMENT, that divides its device address."""

    @property
    def dtype(self) -> str:
        """Our dtype name."""
        return self.operand.dtype


def read_matrix(x: Operand, name: str, stored: str) -> Matrix:
    """Check that `x` is a matrix of a known dtype with contiguous, separate, forward rows.

    stored: how the layout stores it, e.g. [M,K].

    Raises: ArgumentError.
    """
    if x.dtype not in DTYPES:
        raise ArgumentError(
            f"{name}: dtype must be one of {', '.join(DTYPES)}, got {x.dtype}; if its bytes are"
            " of one of these, try ptxgen.launcher.view(x, 'e4m3')"
        )
    if DTYPES[x.dtype].is_packed:
        raise ArgumentError(
            f"{name}: {x.dtype} has less than 8 bits, and this call takes arrays of whole bytes"
            " only; try ptxgen.emit for its PTX, or a cast to e4m3"
        )
    if len(x.shape) != 2:
        raise ArgumentError(f"{name}: must be a matrix {stored}, got shape {x.shape}; try reshape")
    rows, columns = x.shape
    row_bytes = x.strides_bytes[0]
    size = x.itemsize
    if x.size:
        _check_strides(x, name, stored)
    padded = columns + -columns % (TMA_ALIGNMENT // size)
    if x.host is not None or not x.size:
        return Matrix(x, rows, columns, max(padded, 1), MAX_ALIGNMENT)
    check_address(x, name)
    # The stride of a single row means nothing; one that suits TMA is as good as any.
    stride = padded if rows == 1 else row_bytes // size
    alignment = min(MAX_ALIGNMENT, x.pointer & -x.pointer)
    return Matrix(x, rows, columns, stride, alignment)


def check_address(x: Operand, name: str) -> None:
    """Raises: ArgumentError if elements lie across what a kernel loads them by."""
    if x.size and x.pointer % x.itemsize:
        raise ArgumentError(
            f"{name}: address {x.pointer:#x} must be a multiple of {x.itemsize} bytes, the size of"
            f" {x.dtype}; try a copy"
        )


def _check_strides(x: Operand, name: str, stored: str) -> None:
    elements = tuple(s // x.itemsize for s in x.strides_bytes)
    for axis, (extent, stride) in enumerate(zip(x.shape, x.strides_bytes, strict=True)):
        if extent > 1 and stride < 0:
            raise ArgumentError(
                f"{name}: stride of axis {axis} must be positive, got {elements[axis]} elements"
                " (a reversed view); try a copy"
            )
        if extent > 1 and stride == 0:
            raise ArgumentError(
                f"{name}: stride of axis {axis} must not be 0 (a broadcast view); try a copy"
            )
        if stride % x.itemsize:
            raise ArgumentError(
                f"{name}: stride of axis {axis} must be whole elements of {x.itemsize} bytes, got"
                f" {stride} bytes; try a copy"
            )
    if x.strides_bytes[1] != x.itemsize:
        transposed = x.strides_bytes[0] == x.itemsize
        hint = "try a contiguous copy"
        if transposed and name == "out":
            hint = "axis 0 is the contiguous one, and the kernels store rows; try a new array"
        elif transposed:
            hint = (
                f"axis 0 is the contiguous one: try passing {name}.T with the other layout letter,"
                " or a copy"
            )
        raise ArgumentError(
            f"{name}: the last axis of {stored} must be contiguous, got strides {elements}"
            f" elements for shape {x.shape}; {hint}"
        )
    if x.shape[0] > 1 and x.strides_bytes[0] < x.shape[1] * x.itemsize:
        raise ArgumentError(
            f"{name}: rows overlap: row stride {elements[0]} elements must be at least the"
            f" {x.shape[1]} elements of a row; try a copy"
        )


def check_output(
    out: Operand, shape: tuple[int, int], dtype: str, inputs: dict[str, Operand]
) -> None:
    """Check an output array against what will be written.

    Raises: ArgumentError.
    """
    if out.shape != shape:
        raise ArgumentError(f"out: shape must be {shape}, got {out.shape}; try out=None")
    if out.dtype != dtype:
        raise ArgumentError(
            f"out: dtype must be {dtype}, got {out.dtype}; try d_dtype={out.dtype!r}"
        )
    if out.readonly:
        raise ArgumentError("out: must be writable, got a read-only array; try a copy")
    for name, x in inputs.items():
        if overlaps(out, x):
            raise ArgumentError(
                f"out overlaps {name}: the kernel would overwrite what it still reads; try a"
                " separate output"
            )


def real_number(name: str, value: Any) -> float:
    """`value` as a float.

    Raises: ArgumentError if it is no real number.
    """
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"{name}: must be a real number, got {value!r}; try 1.0") from error


def output_dtype(d_dtype: str | None, out: Operand | None) -> str:
    """The dtype of D: as asked for, else that of `out`, else bf16.

    Raises: ArgumentError.
    """
    dtype = d_dtype if d_dtype is not None else out.dtype if out is not None else "bf16"
    check_name("out: dtype:" if d_dtype is None else "d_dtype:", dtype, _OUTPUTS)
    return dtype


def check_name(what: str, value: Any, allowed: Collection[str]) -> None:
    """Check that an argument is one of the names `allowed`.

    Raises: ArgumentError.
    """
    if not is_one_of(value, allowed):
        raise ArgumentError(not_one_of(what, value, allowed))


def whole_number(name: str, value: Any, first: int, last: int) -> int:
    """`value` as an int, also where numpy made it.

    Raises: ArgumentError if it is no integer from `first` to `last`.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not first <= int(value) <= last:
        raise ArgumentError(
            f"{name}: must be an integer from {first} to {last}, got {value!r}; try {name}=None"
        )
    return int(value)

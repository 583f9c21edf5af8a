"""Operands: arrays and pointers of callers, reduced to address, shape, strides and dtype."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.dtypes import DTYPES, NAMES_BY_NUMPY_NAME
from ptxgen.errors import ArgumentError, not_one_of
from ptxgen.launch import Device

_STORAGE_BYTES = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "void8": 1, "void16": 2}
"""Types that carry bits of another format -> bytes of an element; `view` says which format."""

_SPELLINGS = {"e4m3fn": "e4m3", "fp16": "f16", "half": "f16", "fp32": "f32"}


@dataclass(frozen=True)
class Operand:
    """One array, wherever it is. Holds what keeps its memory alive."""

    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    """Bytes from one element to the next along each axis."""
    dtype: str
    """Our name (DTYPES) where we have one, else numpy's."""
    itemsize: int
    """Bytes of one element."""
    pointer: int = 0
    """Device address of the first element; 0 for host arrays and empty ones."""
    host: "np.ndarray[Any, Any] | None" = None
    """The array, if it is in host memory."""
    device_index: int | None = None
    """GPU that holds it; None for host memory and for memory of `device`."""
    device: Device | None = None
    """The device object that holds it, e.g. an EmulatorDevice."""
    readonly: bool = False
    stream: int | None = None
    """Stream that its producer works on, which ours must wait for; None = nothing to wait for."""
    owner: Any = None
    """The caller's object."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def byte_range(self) -> tuple[int, int]:
        """(first, past last) byte address that the elements touch; strides must not be negative."""
        start = self.pointer if self.host is None else self.host.ctypes.data
        if not self.size:
            return start, start
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides_bytes, strict=True))
        return start, start + last + self.itemsize


@dataclass(frozen=True)
class RawArray:
    """A pointer with what the caller knows of it. The caller keeps the memory alive."""

    pointer: int
    """Device address of the first element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """Elements (not bytes) from one element to the next along each axis; None = dense rows."""
    dtype: str
    """One of our dtype names, e.g. e4m3."""
    device: int | Device = 0
    """GPU index, or the device object that allocated it."""
    readonly: bool = False

    def operand(self, name: str) -> Operand:
        """This array as an Operand.

        Raises: ArgumentError.
        """
        pointer = _address(self.pointer, name)
        kind = _format(self.dtype, name)
        shape = tuple(int(n) for n in self.shape)
        if any(n < 0 for n in shape):
            raise ArgumentError(
                f"{name}: shape must have no negative extent, got {shape}; try 0 for none"
            )
        size = DTYPES[kind].bytes
        if self.strides is None:
            strides = dense_strides(shape, size)
        elif len(self.strides) != len(shape):
            raise ArgumentError(
                f"{name}: must have one stride per axis of {shape}, got {tuple(self.strides)}; "
                "try strides=None for dense ones"
            )
        else:
            strides = tuple(int(s) * size for s in self.strides)
        # A GpuDevice and its index name the same memory.
        index = getattr(self.device, "index", self.device)
        return Operand(
            shape, strides, kind, size, pointer=pointer,
            device_index=index if isinstance(index, int) else None,
            device=None if isinstance(index, int) else self.device,  # type: ignore[arg-type]
            readonly=self.readonly, owner=self,
        )  # fmt: skip


@dataclass(frozen=True)
class TypedView:
    """An array whose elements are to be read as another format of the same size; see `view`."""

    array: Any
    dtype: str


def view(array: Any, dtype: str) -> TypedView:
    """`array`, read as `dtype`: for frameworks without the format, e.g. FP8 in a cupy.uint8 array.

    Raises: ArgumentError if the dtype is not known. Sizes are compared when the view is used.
    """
    return TypedView(array, _format(dtype, "view"))


def as_operand(array: Any, name: str, stream: int = 0) -> Operand:
    """`array` as an Operand named `name` in messages; producers hand over to `stream`.

    Takes numpy arrays (with ml_dtypes), DLPack objects, `__cuda_array_interface__` objects,
    RawArray, and `view` of any of them. No framework is imported.

    Raises: ArgumentError.
    """
    from ptxgen.launcher import array_interface, dlpack

    if isinstance(array, TypedView):
        return _retyped(as_operand(array.array, name, stream), array.dtype, name)
    if isinstance(array, RawArray):
        return _normalised(array.operand(name))
    if isinstance(array, np.ndarray):
        return _normalised(_numpy_operand(array, name))
    interface = _cuda_interface(array)
    can_dlpack = hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")
    # An exported stream serves both directions: also who reads our output later. Without one,
    # DLPack is better, as its producers order themselves before our stream.
    if interface is not None and (interface.get("stream") is not None or not can_dlpack):
        return _normalised(array_interface.read(array, interface, name))
    if can_dlpack:
        return _normalised(dlpack.read(array, name, stream))
    raise ArgumentError(
        f"{name}: must be a numpy array, an object with __dlpack__ or __cuda_array_interface__, or"
        f" a ptxgen.launcher.RawArray, got {type(array).__name__}; try numpy.asarray(x)"
    )


def numpy_dtype_name(dtype: "np.dtype[Any]") -> str:
    """Our name of a numpy dtype, or numpy's own. ml_dtypes are known by name only: their `str` is
    a void type, and e5m2's is `<f1`."""
    return NAMES_BY_NUMPY_NAME.get(dtype.name, dtype.name)


def dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides of a C-contiguous array."""
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def overlaps(x: Operand, y: Operand) -> bool:
    """Whether an element of `x` shares a byte with one of `y`, in the same memory.

    Interleaved views of one allocation (column slices) do not overlap though their ranges do.
    Where that cannot be decided quickly, intersecting ranges count as an overlap.
    """
    if (x.host is None) != (y.host is None) or x.device_index != y.device_index:
        return False
    if x.device is not y.device or not x.size or not y.size:
        return False
    (x_start, x_end), (y_start, y_end) = x.byte_range(), y.byte_range()
    if x_end <= y_start or y_end <= x_start:
        return False
    limit: Any = 10_000  # numpy's stub knows only -1 and 0
    try:
        return np.shares_memory(_addresses(x), _addresses(y), max_work=limit)
    except np.exceptions.TooHardError:
        return True


class _Addresses:
    """Lets numpy reason about addresses; nothing reads the memory behind them."""

    def __init__(self, x: Operand) -> None:
        self.__array_interface__ = {
            "version": 3, "shape": x.shape, "strides": x.strides_bytes,
            "typestr": f"|V{x.itemsize}", "data": (x.byte_range()[0], True),
        }  # fmt: skip


def _addresses(x: Operand) -> "np.ndarray[Any, Any]":
    return np.asarray(_Addresses(x))


def _cuda_interface(array: Any) -> dict[str, Any] | None:
    """`__cuda_array_interface__`, or None where there is none or the property refuses (torch does
    for CPU tensors and for some dtypes)."""
    try:
        interface = array.__cuda_array_interface__
    except (AttributeError, TypeError, RuntimeError, ValueError, KeyError):
        return None
    return interface if isinstance(interface, dict) else None


def _numpy_operand(array: "np.ndarray[Any, Any]", name: str) -> Operand:
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(
            f"{name}: masked arrays are not supported, as their masks would be ignored; try "
            f"{name}.filled(0)"
        )
    if not array.dtype.isnative:
        raise ArgumentError(
            f"{name}: byte order must be that of this machine, got {array.dtype.str}; try"
            f" {name}.astype({array.dtype.name!r})"
        )
    return Operand(
        array.shape, array.strides, numpy_dtype_name(array.dtype), array.itemsize,
        host=array, readonly=not array.flags.writeable, owner=array,
    )  # fmt: skip


def _normalised(x: Operand) -> Operand:
    """Strides of axes of extent 1 (which may be anything) and of empty arrays, made dense."""
    if x.size and 1 not in x.shape:
        return x
    dense = dense_strides(x.shape, x.itemsize)
    if not x.size:
        return replace(x, strides_bytes=dense)
    strides = list(x.strides_bytes)
    inner = x.itemsize
    for axis in reversed(range(len(strides))):
        if x.shape[axis] == 1:
            strides[axis] = inner
        inner = max(inner, abs(strides[axis]) * x.shape[axis])
    return replace(x, strides_bytes=tuple(strides))


def _retyped(x: Operand, dtype: str, name: str) -> Operand:
    size = DTYPES[dtype].bytes
    if x.itemsize != size or (x.dtype not in _STORAGE_BYTES and x.dtype != dtype):
        raise ArgumentError(
            f"{name}: an array of {x.dtype} ({x.itemsize} bytes) cannot be viewed as {dtype}"
            f" ({size} bytes); must be uint{8 * size}, int{8 * size} or {dtype}; "
            f"try x.view(numpy.uint{8 * size}), or a dtype of {x.itemsize} bytes"
        )
    return replace(x, dtype=dtype)


def _address(pointer: Any, name: str) -> int:
    """A pointer as an int; CUdeviceptr of cuda-bindings is a number to int() only."""
    try:
        address = -1 if isinstance(pointer, bool | str | float) else int(pointer)
    except (TypeError, ValueError):
        address = -1
    if not 0 <= address < 1 << 64:
        raise ArgumentError(
            f"{name}: pointer must be a device address from 0 to 2^64 - 1, got {pointer!r}; try "
            "x.data_ptr() of torch, x.data.ptr of CuPy"
        )
    return address


def _format(dtype: str, name: str) -> str:
    spelling: Any = dtype if isinstance(dtype, str) else ""
    known: str = _SPELLINGS.get(spelling, NAMES_BY_NUMPY_NAME.get(spelling, spelling))
    if known not in DTYPES:
        raise ArgumentError(not_one_of(f"{name}: dtype", dtype, DTYPES))
    return known

"""DLPack: reading the capsules of producers, versions 0.x and 1.x.

Source: DLPack 1.1 header (structures, type codes, flags); Python array API, `__dlpack__`.
"""

import ctypes
from typing import Any

import numpy as np

from ptxgen.dtypes import DTYPES
from ptxgen.errors import ArgumentError
from ptxgen.launcher.arrays import Operand, dense_strides
from ptxgen.launcher.streams import LEGACY_STREAM

MAX_VERSION = (1, 1)
"""Newest DLPack version that we ask for; 1.1 has the FP8 codes."""
HOST_DEVICES = (1, 3)
"""kDLCPU, kDLCUDAHost (pinned)."""
CUDA_DEVICES = (2, 13)
"""kDLCUDA, kDLCUDAManaged."""
READ_ONLY = 1

FORMATS = {
    (2, 16): "f16", (2, 32): "f32", (2, 64): "float64", (4, 16): "bf16", (6, 8): "bool",
    (10, 8): "e4m3", (12, 8): "e5m2", (14, 8): "float8_e8m0fnu",
}  # fmt: skip
"""(DLDataTypeCode, bits) -> our name or numpy's; integers are spelled out by `_dtype_name`."""


class DLDataType(ctypes.Structure):
    """Format of one element."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    """Address, shape and strides; the strides count elements."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class DLManagedTensor(ctypes.Structure):
    """What a `dltensor` capsule holds (DLPack 0.x)."""

    _fields_ = (
        ("tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


class DLManagedTensorVersioned(ctypes.Structure):
    """What a `dltensor_versioned` capsule holds (DLPack 1.x)."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", DLTensor),
    )  # fmt: skip


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def read(array: Any, name: str, stream: int) -> Operand:
    """The Operand that `array.__dlpack__` hands over; its producer orders itself before `stream`.

    Raises: ArgumentError for other devices, vector types, newer major versions, and where the
    producer refuses.
    """
    kind, index = (int(value) for value in array.__dlpack_device__())
    if kind not in HOST_DEVICES + CUDA_DEVICES:
        raise ArgumentError(
            f"{name}: DLPack device type {kind} must be CPU (1), CUDA (2), pinned host (3) or"
            " CUDA managed (13); try a copy on the host"
        )
    # 0 is not allowed in DLPack: the legacy default stream is called 1.
    order = None if kind in HOST_DEVICES else stream or LEGACY_STREAM
    capsule = _capsule(array, order, name)
    if _is_valid(capsule, b"dltensor_versioned"):
        address = _get_pointer(capsule, b"dltensor_versioned")
        managed = DLManagedTensorVersioned.from_address(address)
        if managed.major != MAX_VERSION[0]:
            raise ArgumentError(
                f"{name}: DLPack {managed.major}.{managed.minor} must be version 1.x or 0.x; try a "
                "ptxgen.launcher.RawArray"
            )
        tensor, readonly = managed.tensor, bool(managed.flags & READ_ONLY)
    elif _is_valid(capsule, b"dltensor"):
        tensor = DLManagedTensor.from_address(_get_pointer(capsule, b"dltensor")).tensor
        readonly = False
    else:
        raise ArgumentError(f"{name}: __dlpack__ must give an unused DLPack capsule; try a new one")
    # Not marked as used: the capsule's own destructor then gives the memory back.
    return _operand(
        tensor, readonly, (array, capsule), name, None if kind in HOST_DEVICES else index
    )


def _capsule(array: Any, stream: int | None, name: str) -> Any:
    try:
        try:
            return array.__dlpack__(stream=stream, max_version=MAX_VERSION)
        except TypeError:
            return array.__dlpack__(stream=stream)  # a producer from before DLPack 1.0
    except BufferError as error:
        raise ArgumentError(
            f"{name}: {type(array).__name__} cannot be shared: {error}; try a copy"
        ) from error


def _operand(
    tensor: DLTensor, readonly: bool, owner: Any, name: str, device_index: int | None
) -> Operand:
    dtype = tensor.dtype
    if dtype.lanes != 1 or dtype.bits % 8:
        raise ArgumentError(
            f"{name}: DLPack elements must be whole bytes and no vectors, got {dtype.bits} bits x"
            f" {dtype.lanes} lanes; try a view as bytes, and ptxgen.launcher.view of it"
        )
    itemsize = dtype.bits // 8
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = dense_strides(shape, itemsize)
    if tensor.strides:
        strides = tuple(tensor.strides[i] * itemsize for i in range(tensor.ndim))
    pointer = (tensor.data or 0) + tensor.byte_offset
    operand = Operand(
        shape, strides, _dtype_name(dtype.code, dtype.bits), itemsize,
        pointer=pointer, device_index=device_index, readonly=readonly, owner=owner,
    )  # fmt: skip
    return operand if device_index is not None else _on_host(operand, name)


def _dtype_name(code: int, bits: int) -> str:
    return FORMATS.get(
        (code, bits), f"{('int', 'uint')[code] if code < 2 else f'code{code}_'}{bits}"
    )


class _HostMemory:
    """Host memory of a DLPack producer as numpy sees it; keeps the producer alive."""

    def __init__(self, x: Operand) -> None:
        self.owner = x.owner
        self.__array_interface__ = {
            "version": 3, "shape": x.shape, "strides": x.strides_bytes,
            "typestr": f"|V{x.itemsize}", "data": (x.pointer, x.readonly),
        }  # fmt: skip


def _on_host(x: Operand, name: str) -> Operand:
    """A host operand as a numpy array over the same memory."""
    from dataclasses import replace

    import ml_dtypes  # noqa: F401 - gives numpy the names of bf16 and FP8

    known = DTYPES.get(x.dtype)
    try:
        dtype = np.dtype(known.numpy_name if known else x.dtype)
    except TypeError as error:
        raise ArgumentError(
            f"{name}: dtype {x.dtype} is not known to numpy; try a view as uint8, and "
            "ptxgen.launcher.view of that"
        ) from error
    array = np.asarray(_HostMemory(x)).view(dtype)
    return replace(x, pointer=0, host=array, readonly=not array.flags.writeable)

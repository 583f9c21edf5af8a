"""DLPack: making capsules for consumers.

Source: DLPack 1.1 header; Python array API, "Data interchange mechanisms".
"""

import ctypes
from typing import Any

from ptxgen.launcher.dlpack import (
    CUDA_DEVICES,
    MAX_VERSION,
    DLDataType,
    DLManagedTensor,
    DLManagedTensorVersioned,
    DLTensor,
)

_exported: dict[int, tuple[Any, ...]] = {}
"""Address of a managed tensor -> it, its shape and strides, and the owner of the memory."""


def _delete(address: int) -> None:
    """The consumer's (or the unused capsule's) farewell to a managed tensor."""
    _exported.pop(address, None)


# Raw pointers: the capsule is being destroyed, so no reference to it may be made.
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.c_void_p,)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}


def _destroy(capsule: int) -> None:
    """Destructor of a capsule: one that nobody has taken over (renamed) deletes its tensor."""
    name = _name(capsule)
    if name in _NAMES.values():
        _exported.pop(_pointer(capsule, name), None)


# Kept for ever: consumers call them whenever they let go.
_delete_callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete)
_destroy_callback = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destroy)

_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def export(
    owner: Any,
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    kind: tuple[int, int],
    device_index: int,
    *,
    versioned: bool,
) -> Any:
    """A capsule over CUDA memory that keeps `owner` alive until the consumer lets go.

    strides: in elements. kind: (DLDataTypeCode, bits). versioned: DLPack 1.x, else 0.x.
    """
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    steps = (ctypes.c_int64 * max(len(shape), 1))(*strides)
    tensor = DLTensor(
        pointer, CUDA_DEVICES[0], device_index, len(shape), DLDataType(*kind, 1), extents, steps, 0
    )
    deleter = ctypes.cast(_delete_callback, ctypes.c_void_p)
    managed: DLManagedTensor | DLManagedTensorVersioned
    if versioned:
        managed = DLManagedTensorVersioned(*MAX_VERSION, None, deleter, 0, tensor)
    else:
        managed = DLManagedTensor(tensor, None, deleter)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, extents, steps, owner)
    return _new(address, _NAMES[versioned], ctypes.cast(_destroy_callback, ctypes.c_void_p))

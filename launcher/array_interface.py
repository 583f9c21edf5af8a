"""`__cuda_array_interface__`, versions 2 and 3: reading it.

Source: numba-cuda documentation, "CUDA Array Interface (Version 3)".
"""

from typing import Any

from ptxgen.errors import ArgumentError
from ptxgen.launcher.arrays import Operand, dense_strides, numpy_dtype_name

_NAMES = {"f2": "f16", "f4": "f32", "f8": "float64", "b1": "bool"}
_KINDS = {"u": "uint", "i": "int", "V": "void", "c": "complex"}


def read(array: Any, interface: Any, name: str) -> Operand:
    """The Operand that `array.__cuda_array_interface__` describes.

    Raises: ArgumentError for masks, other byte orders and malformed dictionaries.
    """
    try:
        shape = tuple(int(n) for n in interface["shape"])
        typestr = str(interface["typestr"])
        pointer, readonly = interface["data"]
        strides = interface.get("strides")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError(
            f"{name}: __cuda_array_interface__ must have shape, typestr and data=(pointer,"
            f" readonly), got {interface!r}; try ptxgen.launcher.RawArray"
        ) from error
    if interface.get("mask") is not None:
        raise ArgumentError(f"{name}: masked arrays are not supported; try filling the mask first")
    if len(typestr) < 3 or typestr[0] not in "<|" or not typestr[2:].isdigit():
        raise ArgumentError(
            f"{name}: typestr {typestr!r} must be little endian; try a copy that is"
        )
    itemsize = int(typestr[2:])
    stream = interface.get("stream")
    if stream == 0:
        raise ArgumentError(
            f"{name}: stream 0 is not allowed in __cuda_array_interface__ (1 = legacy default,"
            " 2 = per-thread default, None = no synchronisation); try 1"
        )
    return Operand(
        shape,
        dense_strides(shape, itemsize) if strides is None else tuple(int(s) for s in strides),
        _dtype_name(array, typestr, itemsize),
        itemsize,
        pointer=int(pointer or 0),
        device_index=_device_index(array, int(pointer or 0)),
        readonly=bool(readonly),
        stream=None if stream is None else int(stream),
        owner=array,
    )


def _dtype_name(array: Any, typestr: str, itemsize: int) -> str:
    """Our name of a typestr; the array's own dtype decides where it says only `void` or `f1`."""
    kind = typestr[1:]
    if kind in _NAMES:
        return _NAMES[kind]
    if kind[0] == "V" or kind == "f1":
        dtype: Any = getattr(array, "dtype", None)
        if getattr(dtype, "itemsize", None) == itemsize and hasattr(dtype, "name"):
            return numpy_dtype_name(dtype)
    return f"{_KINDS.get(kind[0], kind[0])}{8 * itemsize}"


def _device_index(array: Any, pointer: int) -> int | None:
    """GPU of the array: as it says (CuPy, torch, ours), else as the driver says; None = unknown."""
    device = getattr(array, "device", None)
    for attribute in ("id", "index"):
        index = getattr(device, attribute, None)
        if isinstance(index, int):
            return index
    if not pointer:
        return None
    from ptxgen.launcher.driver import check, load_driver

    driver = load_driver()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    result = driver.cuPointerGetAttribute(attribute, pointer)
    return int(check("cuPointerGetAttribute", result, f"address {pointer:#x}"))

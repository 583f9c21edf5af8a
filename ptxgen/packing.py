"""Formats below 8 bits in memory: elements side by side, low bits first.

numpy holds each element in a byte of its own (ml_dtypes), in the low bits. In memory 4-bit elements
lie two to a byte and 6-bit elements four to three bytes, element 0 in the lowest bits.

Source: CUDA driver API, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B and 16U6_ALIGN16B.
"""

from typing import Any

import numpy as np

from ptxgen.dtypes import dtype
from ptxgen.quantize import numpy_dtype

Array = np.ndarray[Any, Any]


def pack(x: Array, name: str) -> Array:
    """x of shape [rows, columns], one element of dtype `name` a byte -> uint8 rows of packed bytes.

    Formats of 8 bits and more keep their bytes. A row that does not fill its last byte ends in 0.
    """
    codes = np.ascontiguousarray(x).view(np.uint8)
    if not dtype(name).is_packed:
        return codes
    bits = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., : dtype(name).bits]
    return np.packbits(bits.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def unpack(packed: Array, name: str, columns: int) -> Array:
    """What `pack` packed: packed uint8 rows -> `columns` elements of dtype `name` in each row."""
    kind = dtype(name)
    if not kind.is_packed:
        return np.ascontiguousarray(packed).view(numpy_dtype(name))
    bits = np.unpackbits(packed, axis=-1, bitorder="little", count=columns * kind.bits)
    elements = bits.reshape(*packed.shape[:-1], columns, kind.bits)
    return np.packbits(elements, axis=-1, bitorder="little")[..., 0].view(numpy_dtype(name))


def storage(x: Array, name: str) -> bytes:
    """The bytes in memory of a matrix of shape [rows, columns], from its first element to past its
    last, the gaps between its rows included.

    x: one element of the packed dtype `name` a byte; its row stride may be larger than its row.
    """
    rows, columns = x.shape
    if not rows or not columns:
        return b""
    stride = x.strides[0] // x.itemsize if rows > 1 else columns
    count = (rows - 1) * stride + columns
    codes = np.lib.stride_tricks.as_strided(x.view(np.uint8), (1, count), (0, 1))
    return pack(codes, name).tobytes()

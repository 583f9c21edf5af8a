"""Tensor maps: `launch.TensorMap` -> the 128 bytes that the hardware reads, encoded by the driver.

The driver writes into our own 128-byte aligned storage. cuda.bindings' CUtensorMap object is only
16-byte aligned, and its wrapper of cuTensorMapEncodeTiled gives no choice of storage, so the
driver's function is called through its address.
"""

import ctypes
from typing import Any

from ptxgen.launch import (
    INTERLEAVES,
    L2_PROMOTIONS,
    OOB_FILLS,
    SWIZZLES,
    TensorMap,
)
from ptxgen.launcher.driver import check, driver_error, load_driver
from ptxgen.tensor_map_rules import check_tensor_map

TENSOR_MAP_BYTES = 128
ALIGNMENT = 128
"""Of a tensor map in host memory: 64 by the API text, 128 by cuda.h from CUDA 13.0 on."""

MAX_BASE_ALIGNMENT = 32
"""No tensor map asks more of its base address than this."""

# CUtensorMapDataType. Source: cuda.h of CUDA 13.0.
DATA_TYPE_CODES = {
    "uint8": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6,
    "float32": 7, "float64": 8, "bfloat16": 9, "float32_ftz": 10, "tfloat32": 11,
    "tfloat32_ftz": 12, "16u4_align8b": 13, "16u4_align16b": 14, "16u6_align16b": 15,
}  # fmt: skip


class AlignedStorage:
    """Zeroed host memory whose address is a multiple of 128; it does not move."""

    def __init__(self, nbytes: int) -> None:
        self._memory = (ctypes.c_ubyte * (nbytes + ALIGNMENT))()
        start = ctypes.addressof(self._memory)
        self.address = start + -start % ALIGNMENT
        self.nbytes = nbytes

    def bytes(self, offset: int = 0, nbytes: int | None = None) -> bytes:
        """A copy of the contents."""
        return ctypes.string_at(self.address + offset, self.nbytes if nbytes is None else nbytes)


class TensorMapSlot:
    """One tensor map at a fixed host address, encoded again whenever its buffer moves.

    A null map (`buffer` None) stays 128 zero bytes.
    """

    def __init__(self, tensor_map: TensorMap, address: int, name: str = "tensor map") -> None:
        """`address`: host address of 128 zeroed bytes, 128-byte aligned; the caller owns them.

        Raises: LaunchError if the map breaks a rule whatever its address.
        """
        if address % ALIGNMENT:
            raise AssertionError(f"tensor map storage at {address:#x} is not {ALIGNMENT}-aligned")
        self.tensor_map = tensor_map
        self.name = name
        self._address = address
        if tensor_map.buffer is None:
            return
        check_tensor_map(tensor_map, 0)
        rank = len(tensor_map.dims)
        steps = tensor_map.element_strides or (1,) * rank
        self._arguments = (
            (ctypes.c_uint64 * rank)(*tensor_map.dims),
            (ctypes.c_uint64 * max(rank - 1, 1))(*tensor_map.strides_bytes),
            (ctypes.c_uint32 * rank)(*tensor_map.box),
            (ctypes.c_uint32 * rank)(*steps),
            INTERLEAVES.index(tensor_map.interleave),
            SWIZZLES.index(tensor_map.swizzle),
            L2_PROMOTIONS.index(tensor_map.l2_promotion),
            OOB_FILLS.index(tensor_map.oob_fill),
        )
        self._type_code = DATA_TYPE_CODES[tensor_map.element_type]

    def encode(self, buffer_address: int) -> None:
        """Encode for the buffer at device address `buffer_address`; the context must be current.

        Raises: LaunchError if the address is misaligned, DriverError if the driver refuses.
        """
        if self.tensor_map.buffer is None:
            return
        base = buffer_address + self.tensor_map.offset_bytes
        if base % MAX_BASE_ALIGNMENT:
            check_tensor_map(self.tensor_map, base)
        code = _encode_function()(
            self._address, self._type_code, len(self.tensor_map.dims), base, *self._arguments
        )
        if code:
            driver = load_driver()
            raise driver_error(
                driver,
                "cuTensorMapEncodeTiled",
                code,
                f"{self.name}: {self.tensor_map}, {base=:#x}",
            )


_functions: list[Any] = []


def _encode_function() -> Any:
    """cuTensorMapEncodeTiled of the loaded driver, as a ctypes function."""
    if not _functions:
        driver = load_driver()
        result = driver.cuGetProcAddress(b"cuTensorMapEncodeTiled", 12000, 0)
        address, _found = check("cuGetProcAddress", result, "cuTensorMapEncodeTiled, CUDA 12.0")
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p,
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
            ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int,
        )  # fmt: skip
        _functions.append(prototype(int(address)))
    return _functions[0]


def encode_tensor_map(tensor_map: TensorMap, buffer_address: int) -> bytes:
    """The 128 bytes of `tensor_map` over the buffer at `buffer_address`; a context must be current.

    Raises: LaunchError, DriverError.
    """
    storage = AlignedStorage(TENSOR_MAP_BYTES)
    TensorMapSlot(tensor_map, storage.address).encode(buffer_address)
    return storage.bytes()

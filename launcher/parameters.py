"""Kernel parameters: packed by their declared kinds into one block, with the pointer table.

Never through the bindings' guesses: there a Python int becomes 64 bits and a float a double,
whatever the kernel declares.
"""

import ctypes
import math
import operator
import struct
from collections.abc import Sequence

from ptxgen.errors import ArgumentError, LaunchError
from ptxgen.launch import Buffer, Param, TensorMap
from ptxgen.launcher.tensor_maps import (
    ALIGNMENT,
    TENSOR_MAP_BYTES,
    AlignedStorage,
    TensorMapSlot,
)
from ptxgen.tensor_map_rules import element_bits

_INTEGERS = {"u32": (4, False), "u64": (8, False), "s32": (4, True), "s64": (8, True)}
"""kind -> (bytes, signed)."""


def parameter_bytes(param: Param) -> int:
    """Size of a parameter in the kernel's parameter space."""
    if param.kind in _INTEGERS:
        return _INTEGERS[param.kind][0]
    if param.kind == "bytes":
        return len(_hexadecimal(param))
    return {"f32": 4, "pointer": 8, "tensor_map": TENSOR_MAP_BYTES}[param.kind]


def pack_scalar(param: Param) -> bytes:
    """The bytes of a parameter of kind u32, u64, s32, s64, f32 or bytes, little endian.

    Raises: LaunchError naming the parameter where the value does not fit its kind.
    """
    if param.kind == "bytes":
        return _hexadecimal(param)
    if param.kind == "f32":
        return _pack_f32(param)
    size, signed = _INTEGERS[param.kind]
    low, high = (-(1 << 8 * size - 1), 1 << 8 * size - 1) if signed else (0, 1 << 8 * size)
    value = param.value
    if isinstance(value, bool):
        raise LaunchError(
            f"parameter {param.name}: must be a {param.kind} integer, got {value}; try 1 or 0"
        )
    try:
        number = operator.index(value)
    except TypeError:
        raise LaunchError(
            f"parameter {param.name}: must be a {param.kind} integer, got {value!r}; try int"
        ) from None
    if not low <= number < high:
        raise LaunchError(
            f"parameter {param.name}: {param.kind} must be in {low}..{high - 1}, got {number}; "
            "try a wider kind"
        )
    return number.to_bytes(size, "little", signed=signed)


def _pack_f32(param: Param) -> bytes:
    try:
        if isinstance(param.value, (str, bytes, bool)):
            raise TypeError
        number = float(param.value)
    except TypeError:
        raise LaunchError(
            f"parameter {param.name}: must be an f32 number, got {param.value!r}; try float"
        ) from None
    try:
        return struct.pack("<f", number)
    except OverflowError:
        if math.isfinite(number):
            raise LaunchError(
                f"parameter {param.name}: must be at most the largest f32, 3.4028235e38, got "
                f"{number}; try inf"
            ) from None
        raise


def _hexadecimal(param: Param) -> bytes:
    try:
        return bytes.fromhex(param.value)
    except (TypeError, ValueError):
        raise LaunchError(
            f"parameter {param.name}: bytes must be hexadecimal text, got {param.value!r}; try "
            "x.hex()"
        ) from None


def _check_extent(param: Param, buffer: Buffer) -> None:
    """Refuse a tensor map that reaches past its buffer: TMA fills zeros outside `dims` only."""
    tensor_map: TensorMap = param.value
    steps = zip(tensor_map.dims[1:], tensor_map.strides_bytes, strict=True)
    row = -(-tensor_map.dims[0] * element_bits(tensor_map.element_type) // 8)
    end = tensor_map.offset_bytes + row + sum((extent - 1) * step for extent, step in steps)
    if end > buffer.nbytes:
        raise LaunchError(
            f"parameter {param.name}: the tensor map reaches byte {end} of buffer {buffer.name!r},"
            f" which has {buffer.nbytes} bytes; try smaller dims or strides, or a larger buffer"
        )


class ParameterBlock:
    """All parameters of one launch in one block of host memory, and the table that points to them.

    Pointers and tensor maps follow the buffer addresses; everything else is packed once. The
    driver copies the block during the launch call.
    """

    def __init__(self, params: Sequence[Param], buffers: Sequence[Buffer]) -> None:
        """Pack all that does not depend on addresses.

        Raises: LaunchError.
        """
        self.buffer_names = tuple(b.name for b in buffers)
        self.sizes = tuple(parameter_bytes(p) for p in params)
        """Bytes of each parameter, in the kernel's order."""
        offsets, end = [], 0
        for param, size in zip(params, self.sizes, strict=True):
            alignment = ALIGNMENT if param.kind == "tensor_map" else 16
            end += -end % alignment
            offsets.append(end)
            end += size
        self.storage = AlignedStorage(max(end, 1))
        self._table = (ctypes.c_void_p * max(len(params), 1))(
            *(self.storage.address + offset for offset in offsets)
        )
        self.table_address = ctypes.addressof(self._table)
        """Host address of the pointers to the parameters: cuLaunchKernel's kernelParams."""
        self.offsets = tuple(offsets)
        self._pointers: list[list[tuple[ctypes.c_uint64, int]]] = [[] for _ in buffers]
        self._maps: list[list[TensorMapSlot]] = [[] for _ in buffers]
        self._addresses: list[int | None] = [None] * len(buffers)
        for param, offset in zip(params, offsets, strict=True):
            self._place(param, self.storage.address + offset, buffers)

    def _place(self, param: Param, address: int, buffers: Sequence[Buffer]) -> None:
        if param.kind == "pointer":
            if param.value is None:
                return  # a pointer that the kernel does not follow stays zero
            slot = (ctypes.c_uint64.from_address(address), param.offset_bytes)
            self._pointers[self.buffer_names.index(param.value)].append(slot)
        elif param.kind == "tensor_map":
            slot_map = TensorMapSlot(param.value, address, f"parameter {param.name}")
            if param.value.buffer is not None:
                index = self.buffer_names.index(param.value.buffer)
                _check_extent(param, buffers[index])
                self._maps[index].append(slot_map)
        else:
            data = pack_scalar(param)
            ctypes.memmove(address, data, len(data))

    def set_addresses(self, addresses: Sequence[int], workspaces: Sequence[int] = ()) -> None:
        """Point at the buffers' device addresses, in the order of the buffers.

        workspaces: addresses of the last buffers, where those are the kernel's own.
        Only what changed since the last call is written. A context must be current if a tensor
        map changes.

        Raises: ArgumentError, LaunchError, DriverError.
        """
        known = self._addresses
        count = len(known) - len(workspaces)
        if len(addresses) != count:
            raise ArgumentError(
                f"the launch has {count} buffers {self.buffer_names[:count]}, got"
                f" {len(addresses)} addresses; try one for each, in this order"
            )
        for index, address in enumerate((*addresses, *workspaces)):
            if address == known[index]:
                continue
            known[index] = None  # until all of them are written
            for word, offset in self._pointers[index]:
                word.value = address + offset
            for slot in self._maps[index]:
                slot.encode(address)
            known[index] = address

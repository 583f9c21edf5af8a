"""Staging: host operands copied to a device for one call, and freed after it."""

import math
from types import TracebackType
from typing import Any

import numpy as np

from ptxgen.launch import Device
from ptxgen.launcher.arrays import Operand
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.gemm_arguments import Matrix


class Staging:
    """Allocations of one call on one device; device operands pass through untouched."""

    def __init__(self, device: Device, stream: int) -> None:
        self._device = device
        self._stream = stream
        self._allocations: list[int] = []

    def __enter__(self) -> "Staging":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._allocations:
            self._device.free(self._allocations.pop())

    def bring(self, x: Matrix, *, copy: bool) -> int:
        """Device address of a matrix; a host one is copied to rows of `x.stride` elements, or only
        given room where `copy` is False."""
        host = x.operand.host
        if host is None:
            return x.operand.pointer
        if not copy:
            return self._alloc(x.rows * x.stride * x.operand.itemsize)
        if x.stride != x.columns:
            padded = np.zeros((x.rows, x.stride), host.dtype)
            padded[:, : x.columns] = host
            host = padded
        return self._write(np.ascontiguousarray(host))

    def bring_dense(self, x: Operand) -> int:
        """Device address of an array; a host one is copied to dense rows."""
        return x.pointer if x.host is None else self._write(np.ascontiguousarray(x.host))

    def bring_padded(self, x: Operand, shape: tuple[int, ...]) -> int:
        """Device address of an array; a host one is copied to `shape`, whose last axis may be
        longer (the rest is zeros)."""
        if x.host is None:
            return x.pointer
        padded = np.zeros(shape, x.host.dtype)
        _same_part(padded, x.host)[...] = x.host
        return self._write(padded)

    def fetch_padded(self, x: Operand, shape: tuple[int, ...], address: int) -> None:
        """Copy what `bring_padded` made room for back into the host array."""
        assert x.host is not None
        data = self._device.read(address, math.prod(shape) * x.itemsize)
        padded = np.frombuffer(data, np.uint8).view(x.host.dtype).reshape(shape)
        x.host[...] = _same_part(padded, x.host)

    def fetch(self, x: Matrix, address: int) -> None:
        """Copy a matrix of rows of `x.stride` elements from the device into its host array."""
        host = x.operand.host
        assert host is not None
        data = self._device.read(address, x.rows * x.stride * x.operand.itemsize)
        rows = np.frombuffer(data, np.uint8).view(host.dtype).reshape(x.rows, x.stride)
        host[...] = rows[:, : x.columns]

    def _alloc(self, nbytes: int) -> int:
        address = self._device.alloc(nbytes)
        self._allocations.append(address)
        return address

    def _write(self, array: "np.ndarray[Any, Any]") -> int:
        data = memoryview(array.reshape(-1).view(np.uint8).data)
        address = self._alloc(len(data))
        if isinstance(self._device, GpuDevice):
            self._device.write(address, data, self._stream)
        else:
            self._device.write(address, data)
        return address


def _same_part(padded: "np.ndarray[Any, Any]", host: "np.ndarray[Any, Any]") -> Any:
    """The elements of `padded` that those of `host` have; a single number has no rows to pad."""
    return padded[..., : host.shape[-1]] if host.ndim else padded

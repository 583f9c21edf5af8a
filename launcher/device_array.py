"""DeviceArray: an output that we allocated, for any library that takes device arrays."""

import math
import weakref
from typing import Any

import numpy as np

from ptxgen.dtypes import dtype
from ptxgen.launcher.arrays import dense_strides
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.dlpack import CUDA_DEVICES, FORMATS
from ptxgen.launcher.dlpack_export import export
from ptxgen.launcher.streams import LEGACY_STREAM

_TYPESTRS = {"f16": "<f2", "f32": "<f4", "bf16": "<V2", "e4m3": "|V1", "e5m2": "|V1"}
_CODES = {name: code for code, name in FORMATS.items()}


class DeviceArray:
    """A dense array in GPU memory, freed with its last reference.

    Consumers: `cupy.asarray(x)` (f16, f32), `torch.from_dlpack(x)`, anything that reads
    `__cuda_array_interface__` v3 or DLPack. Work on it is ordered after the stream that wrote it.
    """

    def __init__(
        self, device: GpuDevice, shape: tuple[int, ...], dtype_name: str, stream: int = 0
    ) -> None:
        """Allocate; contents are undefined. `stream`: handle of the stream that will write it.

        Raises: DriverError.
        """
        self.gpu = device
        self.shape = shape
        self.dtype_name = dtype_name
        self.stream = stream
        self.itemsize = dtype(dtype_name).bytes
        self.nbytes = math.prod(shape) * self.itemsize
        self.pointer = device.alloc(self.nbytes) if self.nbytes else 0
        if self.pointer:
            # cuMemFree waits for the kernels that may still use the memory.
            weakref.finalize(self, device.free, self.pointer).atexit = False

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides."""
        return dense_strides(self.shape, self.itemsize)

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The numpy dtype, from ml_dtypes where numpy has none."""
        import ml_dtypes

        name = dtype(self.dtype_name).numpy_name
        return np.dtype(getattr(ml_dtypes, name, name))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA Array Interface, version 3. It has no bf16: that is two void bytes there."""
        return {
            "version": 3, "shape": self.shape, "strides": None,
            "typestr": _TYPESTRS[self.dtype_name], "data": (self.pointer, False),
            "stream": self.stream or LEGACY_STREAM,
        }  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kDLCUDA, GPU index)."""
        return CUDA_DEVICES[0], self.gpu.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over this memory, ordered before the consumer's `stream` (-1 = not).

        Raises: BufferError for a copy or another device.
        """
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"DeviceArray is exported in place on GPU {self.gpu.index} only")
        if stream != -1:
            self.gpu.order_after(stream or LEGACY_STREAM, self.stream)
        code, bits = _CODES[self.dtype_name]
        elements = tuple(s // self.itemsize for s in self.strides)
        return export(
            self, self.pointer, self.shape, elements, (code, bits), self.gpu.index,
            versioned=max_version is not None and max_version[0] >= 1,
        )  # fmt: skip

    def to_numpy(self) -> "np.ndarray[Any, Any]":
        """A copy in host memory, after all work on the GPU has finished."""
        data = self.gpu.read(self.pointer, self.nbytes)
        return np.frombuffer(bytearray(data), self.dtype).reshape(self.shape)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype_name}, gpu={self.gpu.index})"

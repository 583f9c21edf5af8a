"""workload: a problem's operands on the GPU, in so many copies that the L2 holds none of them.

Operands are random numbers, since data decide the power and so the clock. They come from a pool
of 2^24 quantised normal numbers, repeated: drawing 10^9 of them would take longer than measuring.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.driver import check
from ptxgen.launcher.timing import OperandRotation
from ptxgen.operands import POISON, Operands, with_strides
from ptxgen.problem import BLOCK_SCALES, FP8, Gemm
from ptxgen.quantize import cast, numpy_dtype, quantize_tensor

Array = np.ndarray[Any, Any]

POOL_ELEMENTS = 16_777_259
"""A prime, so that no row length makes rows of an operand equal."""


@dataclass(frozen=True)
class Pool:
    """Quantised normal numbers, and what they must be multiplied with."""

    values: Array
    scale: float


@lru_cache(maxsize=8)
def pool(name: str, seed: int) -> Pool:
    """The pool of dtype `name`."""
    drawn = np.random.default_rng(seed).standard_normal(POOL_ELEMENTS, dtype=np.float32)
    if name in FP8:
        values, scale = quantize_tensor(drawn, name)
        return Pool(values, float(scale[0]))
    return Pool(cast(drawn, name), 1.0)


@dataclass(frozen=True)
class HostOperands:
    """Operands of a problem on the host."""

    operands: Operands
    """A and B as views of their storage."""
    storage: dict[str, Array]
    """All bytes of each input buffer, by name."""
    uniform_scales: tuple[float, float]
    """What A and B are quantised with, for peers that know no other scales."""


def make_host_operands(problem: Gemm, seed: int = 0) -> HostOperands:
    """Operands of a problem, the same for the same seed."""
    pools = pool(problem.a, seed), pool(problem.b, seed + 1)
    storage, views = {}, []
    for operand, source in zip(("a", "b"), pools, strict=True):
        rows, columns = getattr(problem, f"{operand}_shape")
        stride = problem.stride(operand)
        storage[operand] = np.resize(source.values, (rows, stride))
        views.append(storage[operand][:, :columns])
    rng = np.random.default_rng(seed + 2)
    scales: list[Array | None] = []
    shapes = {"scale_a": problem.scale_a_shape, "scale_b": problem.scale_b_shape}
    for source, (name, shape) in zip(pools, shapes.items(), strict=True):
        if problem.scale == "none":
            scales.append(None)
            continue
        varied = problem.scale != "tensor"
        factors = np.exp2(rng.uniform(-1, 1, shape)) if varied else np.ones(shape)
        values = storage[name] = (source.scale * factors).astype(np.float32)
        if problem.scale in BLOCK_SCALES:
            values = with_strides(values, getattr(problem, f"{name}_strides"))
            extent = (getattr(problem, f"{name}_length"),)
            storage[name] = np.lib.stride_tricks.as_strided(values, extent, (values.itemsize,))
        scales.append(values)
    return HostOperands(
        Operands(views[0], views[1], scales[0], scales[1]),
        storage,
        (pools[0].scale, pools[1].scale),
    )


class Workload:
    """Operands of one problem on the host, and rotating copies of them on the GPU."""

    def __init__(self, device: GpuDevice, problem: Gemm, seed: int = 0) -> None:
        """Raises: DriverError, e.g. for want of memory."""
        self.device = device
        self.problem = problem
        host = make_host_operands(problem, seed)
        self.operands = host.operands
        self.uniform_scales = host.uniform_scales
        self.d_bytes = problem.extent_bytes("d")
        nbytes = {name: content.nbytes for name, content in host.storage.items()}
        self.rotation = OperandRotation(device, {**nbytes, "d": self.d_bytes})
        self.copies = self.rotation.copies
        for name, content in host.storage.items():
            device.write(self.copies[0][name], content.reshape(-1).view(np.uint8).data)
            for copy in self.copies[1:]:
                copy_on_device(device, copy[name], self.copies[0][name], content.nbytes)

    def poison_d(self) -> None:
        """Fill every copy of D with NaN, so that an element that is not written shows."""
        for copy in self.copies:
            self.device.fill(copy["d"], self.d_bytes, POISON)

    def read_d(self, copy: Mapping[str, int]) -> Array:
        """D of one copy, shape [M,N]."""
        kind = numpy_dtype(self.problem.d)
        rows, columns, stride = self.problem.m, self.problem.n, self.problem.stride("d")
        raw = np.frombuffer(self.device.read(copy["d"], self.d_bytes), np.uint8)
        after_last = rows * stride * kind.itemsize - self.d_bytes
        if after_last:  # a copy of a large D would take as long as measuring it
            raw = np.pad(raw, (0, after_last))
        return raw.view(kind).reshape(rows, stride)[:, :columns]

    def read_d_rows(self, copy: Mapping[str, int], rows: Array) -> Array:
        """Some rows of D of one copy, shape [len(rows), N]."""
        kind = numpy_dtype(self.problem.d)
        row_bytes = self.problem.stride("d") * kind.itemsize
        length = self.problem.n * kind.itemsize
        read = [self.device.read(copy["d"] + int(row) * row_bytes, length) for row in rows]
        return np.frombuffer(b"".join(read), np.uint8).view(kind).reshape(len(rows), -1)

    def free(self) -> None:
        """Give the GPU's memory back."""
        self.rotation.free()


def copy_on_device(device: GpuDevice, target: int, source: int, nbytes: int) -> None:
    """Copy bytes from one allocation to another.

    Raises: DriverError.
    """
    if nbytes:
        with device.current():
            result = device.driver.cuMemcpyDtoD(target, source, nbytes)
            check("cuMemcpyDtoD", result, f"{nbytes} bytes on {device.name}")

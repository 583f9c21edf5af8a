"""grouped_workload: operands of a grouped problem on the GPU, in copies that the L2 cannot hold.

As for dense problems, values come from a pool of quantised normal numbers, repeated.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ptxgen.benchmark.workload import copy_on_device, pool
from ptxgen.grouped_operands import device_sizes
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.grouped_reference import group_operands
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.timing import OperandRotation
from ptxgen.operands import POISON
from ptxgen.quantize import numpy_dtype

Array = np.ndarray[Any, Any]


class GroupedWorkload:
    """Operands of one problem on the host, and rotating copies of them on the GPU; they serve
    cases of any rows, one after another."""

    def __init__(self, device: GpuDevice, problem: GroupedGemm, seed: int = 0) -> None:
        """Raises: DriverError, e.g. for want of memory."""
        self.device, self.problem = device, problem
        self.rows: tuple[int, ...] = ()
        """Rows of each group (kgrouped: K); none before `use`."""
        self.sizes: Array | None = None
        """What the device reads."""
        pools = {"a": pool(problem.a, seed), "b": pool(problem.b, seed + 1)}
        self.host: dict[str, Array] = {
            name: np.resize(source.values, getattr(problem, f"{name}_shape"))
            for name, source in pools.items()
        }
        rng = np.random.default_rng(seed + 2)
        for name, source in (("scale_a", pools["a"]), ("scale_b", pools["b"])):
            shape = problem.scale_shape(name)
            if problem.scale != "none":
                factors = np.exp2(rng.uniform(-1, 1, shape))
                self.host[name] = (source.scale * factors).astype(np.float32)
        images = {name: self._image(name, x) for name, x in self.host.items()}
        self.d_bytes = problem.extent_bytes("d")
        nbytes = {name: x.nbytes for name, x in images.items()}
        if problem.sizes_length:
            nbytes["sizes"] = problem.sizes_length * problem.index_bits // 8
        self.rotation = OperandRotation(device, {**nbytes, "d": self.d_bytes})
        self.copies = self.rotation.copies
        for name, image in images.items():
            device.write(self.copies[0][name], image.data)
            for copy in self.copies[1:]:
                copy_on_device(device, copy[name], self.copies[0][name], image.nbytes)

    def use(self, rows: Sequence[int]) -> None:
        """Give group g `rows[g]` rows.

        Raises: ArgumentError if they do not fit.
        """
        self.sizes = device_sizes(self.problem, rows)
        self.rows = tuple(rows)
        if self.sizes is not None:
            for copy in self.copies:
                self.device.write(copy["sizes"], self.sizes.view(np.uint8).data)

    def _image(self, name: str, x: Array) -> Array:
        """The bytes of an operand in memory; block scales may have rows innermost."""
        strides = {"scale_a": self.problem.scale_a_strides, "scale_b": self.problem.scale_b_strides}
        if x.ndim == 3 and name in strides and strides[name][1] == 1:
            x = x.transpose(0, 2, 1)
        return np.ascontiguousarray(x).reshape(-1).view(np.uint8)

    def reset_d(self) -> None:
        """Fill every copy of D: NaN, so that what is not written shows; zeros if it is added to."""
        value = 0 if self.problem.mode == "kgrouped" else POISON
        for copy in self.copies:
            self.device.fill(copy["d"], self.d_bytes, value)

    def read_rows(self, copy: Mapping[str, int], matrix: int, rows: Array) -> Array:
        """Some rows of one matrix of D of one copy, shape [len(rows), N]."""
        kind = numpy_dtype(self.problem.d)
        steps = self.problem.group_stride("d"), self.problem.stride("d")
        first = copy["d"] + matrix * steps[0] * kind.itemsize
        length = self.problem.n * kind.itemsize
        read = [
            self.device.read(first + int(row) * steps[1] * kind.itemsize, length) for row in rows
        ]
        return np.frombuffer(b"".join(read), np.uint8).view(kind).reshape(len(rows), -1)

    def group(self, segment: Any) -> tuple[Array, Array, Any, Any]:
        """A, B and scales of one segment, as those of its dense problem."""
        host = self.host
        return group_operands(
            self.problem, segment, host["a"], host["b"], host.get("scale_a"), host.get("scale_b")
        )

    def free(self) -> None:
        """Give the GPU's memory back."""
        self.rotation.free()

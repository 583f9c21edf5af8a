"""Tensors of random bytes in global memory, and maps over them."""

from typing import Any

import numpy as np

from ptxgen.emulator.global_memory import GlobalMemory
from ptxgen.emulator.tensor_map import DecodedMap, from_launch
from ptxgen.launch import TensorMap

RNG = np.random.default_rng(7)


def make_map(
    memory: GlobalMemory,
    element_type: str = "uint8",
    size: int = 1,
    dims: tuple[int, ...] = (256, 64),
    box: tuple[int, ...] = (64, 16),
    **fields: Any,
) -> DecodedMap:
    """A packed tensor of random bytes in a new buffer, and a map over it."""
    strides = [dims[0] * size]
    for extent in dims[1:-1]:
        strides.append(strides[-1] * extent)
    strides = strides[: len(dims) - 1]
    nbytes = int(np.prod(dims)) * size
    address = memory.allocate(nbytes, "tensor")
    memory.write(address, RNG.integers(0, 256, nbytes, np.uint8))
    described = TensorMap(
        "tensor", 0, element_type, tuple(dims), tuple(strides), tuple(box), **fields
    )
    return from_launch(described, address)

"""Swizzle functions on shared memory addresses.

Each XORs bits of the 128-byte line number into address bits below 7, so a function is its own
inverse and never leaves its line. Source: PTX ISA 9.0, "Tensor Swizzling Modes"; measured for
32B, 64B and 128B on an H200. The atom variants and 96B come from the PTX tables.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Address = TypeVar("Address", int, NDArray[np.int64])

PERIOD_BYTES = {
    "none": 16, "32B": 256, "64B": 512, "128B": 1024, "128B_ATOM_32B": 512,
    "128B_ATOM_32B_FLIP_8B": 512, "128B_ATOM_64B": 256, "96B": 256,
}  # fmt: skip
"""The function depends on an address only modulo this (none: not at all)."""


def swizzle(address: Address, mode: str) -> Address:
    """Physical address of a linear address, and back. `mode` is a key of PERIOD_BYTES.

    Absolute shared memory offsets: the pattern is anchored at multiples of its period.
    """
    line = address >> 7
    if mode == "none":
        return address
    if mode == "128B":
        return address ^ (line & 7) << 4
    if mode == "64B":
        return address ^ (line & 3) << 4
    if mode in ("32B", "96B"):
        return address ^ (line & 1) << 4
    if mode == "128B_ATOM_32B":
        return address ^ (line & 3) << 5
    if mode == "128B_ATOM_32B_FLIP_8B":
        return address ^ (line & 3) << 5 ^ (line & 1) << 3
    assert mode == "128B_ATOM_64B", mode
    return address ^ (line & 1) << 6

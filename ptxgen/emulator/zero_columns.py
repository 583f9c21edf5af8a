"""The zero-column mask of tcgen05.mma.ws: columns of B that count as zero.

Run lengths follow the worked examples of the PTX text (and CUTLASS), not its table, which swaps
them; not run on hardware. Source: PTX ISA 9.0, "Zero-Column Mask Descriptor".
"""

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import UnknownInstructionError


def zero_columns(descriptor: int, m: int, n: int) -> NDArray[np.bool_]:
    """Flags of the zeroed columns, shape (n,). Only meaningful if bit 39 is set.

    M 128 has one mask of n columns, M 64 two of n / 2, M 32 four of n / 4. Each is alternating runs
    of zeroed (skip + 1) and used (use + 1) columns, after dropping its start count.
    Raises: UnknownInstructionError for a column shift, whose meaning our sources do not settle.
    """
    if descriptor >> 56 & 63:
        raise UnknownInstructionError("zero-column masks with a column shift are not modelled")
    skip, use = (descriptor >> 40 & 255) + 1, (descriptor >> 48 & 255) + 1
    parts = 128 // m
    width = n // parts
    masks = []
    for i in range(parts):
        start, zero_first = descriptor >> 8 * i & 255, bool(descriptor >> 32 + i & 1)
        period = [True] * skip + [False] * use if zero_first else [False] * use + [True] * skip
        repeats = -(-(start + width) // len(period))
        masks.append(np.array(period * repeats)[start : start + width])
    return np.concatenate(masks)

"""Small float32 products that stay on one thread.

OpenBLAS starts its threads for products of more than 2^18 multiplications, which for the size of
one instruction costs more than it gains, and on a busy machine a thousand times more (measured:
64x32x256 took 18 us on one thread, 10.7 ms on two of two loaded cores).
"""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

_LARGEST = 1 << 18


def product(a: F32, b: F32) -> F32:
    """a @ b.T for a of shape (m, k) and b of shape (n, k)."""
    m, k = a.shape
    n = b.shape[0]
    columns = max(_LARGEST // max(m * k, 1), 1)
    if n <= columns:
        return np.asarray(a @ b.T)
    found = np.empty((m, n), np.float32)
    for first in range(0, n, columns):
        last = min(first + columns, n)
        np.matmul(a, b[first:last].T, out=found[:, first:last])
    return found

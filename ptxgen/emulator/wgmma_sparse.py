"""Sparse wgmma: which elements of B the packed elements of A meet.

Half of A's elements are stored: two of every four, or one of every two tf32. Four bits of metadata
tell their places in such a group. Source: PTX ISA 9.0, "Sparse matrix storage" of wgmma; where each
bit travels: CUTLASS, mma_traits_sm90_gmma_sparse.hpp; measured on an H200.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.numerics import FusedModel, fused_dot

F32 = NDArray[np.float32]
Places = NDArray[np.int64]
"""Shape (64, packed elements of a row): the logical k of each."""


def places_of(metadata: NDArray[np.uint32], selector: int, element_bytes: int) -> Places:
    """Logical k of A's packed elements, from the metadata register of 128 threads.

    Thread 32 w + 4 g + q has 32 bits. 8-bit types: bits of row 16 w + g + 8 (q & 1), k from
    32 (q >> 1) on. Others: 16 bits of row 16 w + g, then of row + 8, k from 16 (q & 1) on (8 for
    tf32); only the threads with q >> 1 = `selector` count.
    """
    words = metadata.reshape(4, 8, 4)
    if element_bytes == 1:
        # (w, g, k half, row half) -> row, k half
        rows = words.reshape(4, 8, 2, 2).transpose(0, 3, 1, 2).reshape(64, 2)
        nibbles = rows[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    else:
        chosen = words[:, :, 2 * selector : 2 * selector + 2]
        halves = np.stack([chosen & 0xFFFF, chosen >> 16], axis=1).reshape(64, 2)
        nibbles = halves[:, :, None] >> np.arange(0, 16, 4, dtype=np.uint32) & 15
    groups = nibbles.reshape(64, -1).astype(np.int64)
    if element_bytes == 4:
        return 2 * np.arange(groups.shape[1]) + (groups >> 1 & 1)
    pair = np.stack([groups & 3, groups >> 2], axis=-1)
    return (4 * np.arange(groups.shape[1])[:, None] + pair).reshape(64, -1)


def sparse_dot(
    a: F32, b: F32, c: F32, places: Places, model: FusedModel | None, types: tuple[str, str]
) -> F32:
    """D of packed A (64, K / 2), B (N, K) and C; with a model bit by bit, else as float32 sums."""
    if model is not None and np.isfinite(b).all() and (np.diff(places) > 0).all():
        # Zeros of A change nothing then, and all rows go at once.
        whole = replace(model, k_step=2 * model.k_step)
        return fused_dot(dense_rows(a, places, b.shape[1]), b, c, whole, *types)
    rows = []
    for row in range(len(a)):
        met = b[:, places[row]]
        if model is None:
            rows.append(met @ a[row] + c[row])
        else:
            found: Any = fused_dot(a[row : row + 1], met, c[row : row + 1], model, *types)
            rows.append(found[0])
    return np.stack(rows)


def dense_rows(a: F32, places: Places, depth: int) -> F32:
    """A with its zeros, (rows, K = `depth`); for integers, whose zeros change nothing."""
    dense = np.zeros((len(a), depth), np.float32)
    np.add.at(dense, (np.arange(len(a))[:, None], places), a)
    return dense

"""Sparse mma.sync: half of A's elements are stored, four bits of metadata tell their places.

Two of every four 8- and 16-bit elements are there, one of every two tf32, two pairs of every four
pairs of 4-bit ones. Source: PTX ISA 9.0, "Sparse matrix storage" of mma.sp; measured on an H200.
"""

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.numerics import F32, FusedModel
from ptxgen.emulator.wgmma_sparse import Places, sparse_dot


def places_in_rows(
    metadata: NDArray[np.uint32], selector: int, num_groups: int, element_bits: int
) -> Places:
    """Logical k of A's packed elements, (16, packed elements of a row).

    Lane 4 g + q of `metadata` (32,) has eight groups of four bits; a row has `num_groups` of them.
    16-bit and wider types: half a word is for row g, the other half for row g + 8, four groups
    each; narrower types: q even is for row g, odd for row g + 8, eight groups each. `selector`
    picks which lanes of a quad count, where not all do.
    """
    words = metadata.reshape(8, 4)
    per_lane = 4 if element_bits >= 16 else 8
    along_k = num_groups // per_lane
    if element_bits >= 16:
        # (half, g, k part): a lane for each k part
        chosen = words[:, along_k * selector : along_k * (selector + 1)]
        rows = np.stack([chosen & 0xFFFF, chosen >> 16]).reshape(16, along_k)
    else:
        # (g, k part, half) -> (half, g, k part)
        chosen = words[:, 2 * along_k * selector : 2 * along_k * (selector + 1)]
        rows = chosen.reshape(8, along_k, 2).transpose(2, 0, 1).reshape(16, along_k)
    shifts = np.arange(0, 4 * per_lane, 4, dtype=np.uint32)
    groups = (rows[:, :, None] >> shifts & 15).reshape(16, num_groups).astype(np.int64)
    if element_bits == 32:
        return 2 * np.arange(num_groups) + (groups >> 1 & 1)
    pair = 4 * np.arange(num_groups)[:, None] + np.stack([groups & 3, groups >> 2], axis=-1)
    if element_bits == 4:
        pair = np.stack([2 * pair, 2 * pair + 1], axis=-1)
    return pair.reshape(16, -1)


def sparse_fp8_sm90(a: F32, b: F32, c: F32, places: Places) -> F32:
    """FP8 on sm_90, which has no such instruction: as the dense one is built there, two f16 MMAs
    from zero, the even groups of four and the odd ones, then C is added."""
    model = FusedModel(25, "f32")
    total = np.zeros(c.shape, np.float32)
    even = np.arange(a.shape[1]) % 4 < 2
    for part in (even, ~even):
        total = sparse_dot(a[:, part], b, total, places[:, part], model, ("f16", "f16"))
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.asarray(total + c, np.float32)
    return np.where(np.isnan(found), np.uint32(0x7FFFFFFF).view(np.float32), found)

"""Where tcgen05.mma keeps its accumulator in tensor memory.

Source: PTX ISA 9.0, "Data path layouts" (letters A to G); the closed forms were compared with the
layouts of CUTLASS 4.7 (cute/atom/mma_traits_sm100_frag.hpp), not with hardware.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import EmulationError


@dataclass(frozen=True)
class Piece:
    """A rectangle of D in the tensor memory of one CTA: rows x columns to lanes x columns."""

    cta: int
    """0 or 1: rank in the pair."""
    rows: slice
    """Rows of D."""
    columns: slice
    """Columns of D; they start at tensor memory column 0 relative to the address."""
    lanes: NDArray[np.intp]
    """Lane of each row, relative to the address."""


@lru_cache(maxsize=256)
def accumulator_pieces(m: int, n: int, cta_group: int, ws: bool, sparse: bool) -> tuple[Piece, ...]:
    """The pieces that make up D (m, n), in row order."""
    every = np.arange(128)
    spread = np.arange(64) % 16 + 32 * (np.arange(64) // 16)
    whole = slice(0, n)
    if ws and m < 128:
        # layouts E and G: column halves or quarters lie in further lanes
        parts = 128 // m
        width = n // parts
        return tuple(
            Piece(0, slice(0, m), slice(i * width, (i + 1) * width), np.arange(m) + i * m)
            for i in range(parts)
        )
    if cta_group == 1:
        lanes = every if m == 128 else spread
        return (Piece(0, slice(0, m), whole, lanes),)
    if m == 256:
        return tuple(Piece(c, slice(128 * c, 128 * c + 128), whole, every) for c in (0, 1))
    if sparse:
        return tuple(Piece(c, slice(64 * c, 64 * c + 64), whole, spread) for c in (0, 1))
    half = n // 2
    return tuple(
        Piece(c, slice(64 * c, 64 * c + 64), slice(h * half, (h + 1) * half), every[:64] + 64 * h)
        for c in (0, 1)
        for h in (0, 1)
    )


def check_start_lane(pieces: tuple[Piece, ...], lane: int) -> None:
    """Check the lane field of an accumulator address: 0, or 16 for layouts that use half of each
    quarter.

    Raises: EmulationError.
    """
    interleaved = any(len(p.lanes) == 64 and int(p.lanes[16]) == 32 for p in pieces)
    allowed = (0, 16) if interleaved else (0,)
    if lane not in allowed:
        raise EmulationError(
            f"the accumulator of this tcgen05.mma must start at a lane of {allowed}, got {lane}"
        )

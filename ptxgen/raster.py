"""The order in which a static scheduler walks the tiles of D, by how many clusters.

Tiles go down a group of RASTER_M_TILES tiles along M, then on to the next column, so that CTAs that
run at the same time share tiles of B in L2. Finding a tile's place takes two divisions by numbers
that stay the same for a launch. A division of 32 bits costs an SM about 150 cycles, so a launch
brings a multiplier and a shift for each (Granlund and Montgomery, Division by Invariant Integers
using Multiplication, PLDI 1994).
"""

from ptxgen.errors import ConfigError
from ptxgen.launch import Param

RASTER_M_TILES = 8
"""Tiles along M that run side by side, so that their tiles of B are read from L2."""
FULL_HOPPER_SMS = 132
CLUSTERS_AT_ONCE = {4: 32, 8: 15}
"""Clusters of more than two CTAs that a full Hopper runs side by side, by their size: each lies
within one GPC. Measured on an H200: a 33rd, or 16th, waits for another to end."""
DIVIDEND_BITS = 31
"""No tile has an index as large as 2 to this power."""


def raster_height(cluster_rows: int) -> int:
    """Tiles along M of a group, in clusters of `cluster_rows` CTAs along M."""
    return max(1, RASTER_M_TILES // cluster_rows)


def clusters_at_once(num_sms: int, cluster_ctas: int) -> int:
    """Clusters of so many CTAs that a Hopper GPU of `num_sms` SMs runs side by side."""
    if cluster_ctas in CLUSTERS_AT_ONCE:
        return max(1, CLUSTERS_AT_ONCE[cluster_ctas] * num_sms // FULL_HOPPER_SMS)
    return max(1, num_sms // cluster_ctas)


def division(divisor: int) -> tuple[int, int]:
    """(multiplier, shift): x // divisor == x * multiplier >> shift for all 0 <= x < 2**31.

    Both fit 32 bits, their product with x 63. divisor: 1 .. 2**31 - 1.
    """
    bits = (divisor - 1).bit_length()
    shift = DIVIDEND_BITS + bits
    return -(-(1 << shift) // divisor), shift


def raster_fields(height: int) -> dict[str, int]:
    """What scheduler_static prints of groups that are `height` tiles high."""
    multiplier, shift = division(height)
    return {"raster_height": height, "raster_multiplier": multiplier, "raster_shift": shift}


def raster_params(num_m_tiles: int, num_n_tiles: int, height: int) -> list[Param]:
    """What scheduler_static divides by: tiles of a group, and rows of the last group.

    num_m_tiles, num_n_tiles: tiles in units of clusters. height: of every group but the last.

    Raises: ConfigError if there are 2**31 tiles or more.
    """
    if num_m_tiles * num_n_tiles >= 1 << DIVIDEND_BITS:
        raise ConfigError(
            f"{num_m_tiles} x {num_n_tiles} tiles of D must be fewer than {1 << DIVIDEND_BITS}; "
            "try larger tiles, or several calls"
        )
    params = []
    rows_of_last = num_m_tiles % height or height
    for name, divisor in (("group", height * num_n_tiles), ("last_group", rows_of_last)):
        multiplier, shift = division(max(1, divisor))
        params.append(Param(f"{name}_multiplier", "u32", multiplier))
        params.append(Param(f"{name}_shift", "u32", shift))
    return params

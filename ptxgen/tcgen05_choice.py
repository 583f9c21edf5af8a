"""What kernels on tcgen05 choose alike: how D is stored, who takes the MMA's rows, and pairs."""

from collections.abc import Mapping

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.operand_maps import d_fits_tma
from ptxgen.problem import Gemm

SWAPPED_ROWS = 64
"""Operands are swapped unasked up to this many rows of A. A guess, no Blackwell was at hand:
DeepGEMM swaps its grouped products always."""
PAIR_ROWS = 128
"""Rows of an MMA beyond which two CTAs share it unasked: what one of them holds at most."""
DEFAULT_STAGES = 8
"""Stages beyond which more are not chosen unasked."""
CLUSTERS = ((1, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 4, 1), (2, 2, 2))
"""What is tried: cta_group, cluster_m, cluster_n."""


def default_shape(problem: Gemm, chosen: Mapping[str, int | str]) -> dict[str, int | str]:
    """`chosen`, and good values for those of store, swap_ab, cta_group and the cluster along the
    MMA's rows that are not chosen."""
    values = dict(chosen)
    transposes = dtype(problem.d).bytes == 2  # the TMA store of swapped operands
    staged = d_fits_tma(problem) and (transposes or not chosen.get("swap_ab"))
    values.setdefault("store", "tma" if staged else "global")
    fixed = {"tile_m", "tile_n", "cluster_m", "cluster_n"} & set(chosen)
    can_swap = not fixed and (values["store"] == "global" or transposes)
    values.setdefault("swap_ab", problem.m <= SWAPPED_ROWS and can_swap)
    rows, cluster = (problem.n, "cluster_n") if values["swap_ab"] else (problem.m, "cluster_m")
    alone = rows <= PAIR_ROWS or int(chosen.get(cluster, 2)) % 2
    values.setdefault("cta_group", 1 if alone else 2)
    values.setdefault(cluster, values["cta_group"])
    return values


def check_order(problem: Gemm) -> None:
    """Refuse operands below 8 bits that are not K-major.

    Raises: ConfigError.
    """
    for operand, transposed in (("a", problem.layout[0] == "t"), ("b", problem.layout[1] == "n")):
        kind = dtype(getattr(problem, operand))
        if transposed and kind.is_packed:
            raise ConfigError(
                f"layout={problem.layout}: {operand.upper()} of {kind} must be K-major, since "
                "tcgen05 transposes whole bytes only; try layout=nt"
            )

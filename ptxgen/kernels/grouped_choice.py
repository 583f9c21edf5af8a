"""Which configuration of grouped_sm90 serves a problem: a default, and the grid of all."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from ptxgen.config_rules import first_legal, with_most_stages, with_refusal
from ptxgen.dtypes import dtype
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels.agreement import check_known, static_fields
from ptxgen.kernels.grouped_config import NAME, TOKEN_ROWS, Config
from ptxgen.kernels.grouped_operands import as_groups, check_formats
from ptxgen.kernels.wgmma_config import MAX_STAGES
from ptxgen.layout import align_up
from ptxgen.operand_maps import d_fits_tma
from ptxgen.problem import Gemm

FEW_ROWS = 64
"""Rows of a tile with which the memory is waited for, not the Tensor Core."""
B_ROWS_IN_FLIGHT = 6 * 128
"""Rows of B, of one k-tile each, that a CTA should then ask for at a time. Measured on an H200: 16
groups of 32 rows, n=4096, k=7168: 115.7 us with 6 stages of 128, 116.3 with 5, 7, 8, 116.8 with 9;
32 groups of 8 rows: 220.8 with 6, 221.5 with 11."""


def default_config(problem: GroupedGemm | Gemm, **chosen: int | str | bool) -> Config:
    """A good configuration for the problem, not swapped unless chosen. `chosen` fields are kept.

    Raises: ConfigError if no configuration with the chosen fields is legal, or none serves it.
    """
    problem = as_groups(problem)
    check_known(NAME, Config, chosen)
    check_formats(problem)
    values: dict[str, int | str | bool] = dict(static_fields(problem, Config))
    swapped = bool(chosen.get("swap_ab", False))
    values.update(chosen)
    if "tile_m" not in values:
        values["tile_m"] = (
            max(TOKEN_ROWS, min(64, align_up(problem.m, TOKEN_ROWS))) if swapped
            else 64 if problem.m <= 64 or chosen.get("warpgroups") == 1
            else 128
        )  # fmt: skip
    if "store" not in values:
        staged = d_fits_tma(problem) and not (swapped and dtype(problem.d).bytes != 2)
        values["store"] = "tma" if staged else "global"

    def candidates() -> Iterator[Config]:
        given = [int(chosen["tile_n"])] if "tile_n" in chosen else None
        for tile_n in given or _tile_ns(problem, swapped):
            rows = tile_n if swapped else int(values["tile_m"])
            shape = {"tile_n": tile_n, "warpgroups": 1 if rows % 128 else 2}
            config = Config(**{**values, **shape, **chosen})  # type: ignore[arg-type]
            config.check_values()  # before stages are counted: their bytes divide what there is
            yield config if "stages" in chosen else with_most_stages(config, _ring_limit(config))

    return first_legal(candidates())


def _ring_limit(config: Config) -> int:
    """Stages beyond which a ring is of no use: with few rows it waits for B alone."""
    if config.tile_m > FEW_ROWS:
        return MAX_STAGES
    return B_ROWS_IN_FLIGHT // config.tile_n


def _tile_ns(problem: GroupedGemm, swapped: bool) -> list[int]:
    """tile_n by preference: swapped, two warpgroups of 64 rows of B; else as wide as registers
    allow, no wider than D."""
    if swapped:
        return [128, 64]
    widest = max(8, min(256 if problem.accumulate == "fast" else 128, align_up(problem.n, 16)))
    return list(range(widest, 0, -8))


def configs(problem: GroupedGemm | Gemm) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    problem = as_groups(problem)
    base = default_config(problem)
    shapes = ((1, 1), (2, 1), (1, 2))
    straight = itertools.product(
        (False,), (64, 128, 192, 256), range(16, 257, 16), (1, 2, 3), shapes, ("none",)
    )
    most = max(TOKEN_ROWS, min(256, align_up(max(problem.m, 1), TOKEN_ROWS)))
    swapped = itertools.product(
        (True,), range(TOKEN_ROWS, most + 1, TOKEN_ROWS), (64, 128, 192, 256), (1, 2, 3), shapes,
        ("none", "evict_first"),
    )  # fmt: skip
    for swap_ab, tile_m, tile_n, warpgroups, shape, hint in itertools.chain(straight, swapped):
        staged = d_fits_tma(problem) and not (swap_ab and dtype(problem.d).bytes != 2)
        config = with_most_stages(
            replace(
                base, swap_ab=swap_ab, tile_m=tile_m, tile_n=tile_n, warpgroups=warpgroups,
                cluster_m=shape[0], cluster_n=shape[1], hint=hint,
                store="tma" if staged else "global",
            ),
            MAX_STAGES,
        )  # fmt: skip
        yield with_refusal(config)

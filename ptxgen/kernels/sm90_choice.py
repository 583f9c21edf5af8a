"""Which configuration of gemm_sm90 serves a problem: a default, and the grid of all."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from ptxgen.config_rules import first_legal, with_most_stages, with_refusal
from ptxgen.dtypes import dtype
from ptxgen.epilogue import D_SCALE_BLOCK
from ptxgen.kernels.agreement import check_known, static_fields
from ptxgen.kernels.sm90_config import NAME, SWIZZLES, Config
from ptxgen.kernels.sm90_operands import check_formats
from ptxgen.kernels.wgmma_config import MAX_STAGES
from ptxgen.layout import MMA_M, align_up
from ptxgen.operand_maps import d_fits_tma
from ptxgen.problem import Gemm

MOST_STAGES = 8
"""Stages beyond which more are not chosen unasked, but for small tiles."""


def default_config(problem: Gemm, **chosen: int | str) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    check_known(NAME, Config, chosen)
    check_formats(problem)
    swizzle = int(chosen.get("swizzle_bytes", 128))
    values: dict[str, int | str] = dict(static_fields(problem, Config))
    values["tile_k"] = (swizzle or 128) // dtype(problem.a).bytes
    values["tile_m"] = 64 if problem.m <= 64 or chosen.get("warpgroups") == 1 else 128
    values.update(chosen)
    values.setdefault("warpgroups", 1 if int(values["tile_m"]) % 128 else 2)

    def candidates() -> Iterator[Config]:
        for tile_n in [chosen["tile_n"]] if "tile_n" in chosen else _tile_n_candidates(problem):
            for store in _store_candidates(problem, chosen):
                config = Config(**{**values, "tile_n": tile_n, "store": store})  # type: ignore[arg-type]
                if "a_rows" not in chosen:
                    config = with_few_rows(problem, config)
                yield config if "stages" in chosen else with_most_stages(config, MOST_STAGES)

    return first_legal(candidates())


def with_few_rows(problem: Gemm, config: Config) -> Config:
    """The config, with only the rows of A loaded that the problem has, if it can."""
    few = next((rows for rows in (8, 16, 32) if problem.m <= rows), 0)
    if config.tile_m != MMA_M or config.multicasts or not config.a_tile.k_major:
        few = 0
    return replace(config, a_rows=few)


def _tile_n_candidates(problem: Gemm) -> list[int]:
    """tile_n by preference: as wide as registers allow, no wider than D."""
    step = 16
    if problem.epilogue.d_scale == "group":
        step = D_SCALE_BLOCK * (2 if problem.epilogue.gated else 1)
    widest = max(8, min(256 if problem.accumulate == "fast" else 128, align_up(problem.n, step)))
    return list(range(widest, 0, -8))


def _store_candidates(problem: Gemm, chosen: dict[str, int | str]) -> list[int | str]:
    """store by preference: deferred overlaps the most, global serves every D."""
    if "store" in chosen:
        return [chosen["store"]]
    if chosen.get("split_k", 1) != 1 or not d_fits_tma(problem):
        return ["global"]
    defers = problem.accumulate == "fast" and dtype(problem.d).bytes == 2
    return ["deferred", "tma"] if defers else ["tma"]


def configs(problem: Gemm) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    base = default_config(problem)
    stores = _store_candidates(problem, {})
    shapes = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 4), (1, 1, 8)]
    for tile_m, tile_n, warpgroups, shape, swizzle_bytes in itertools.product(
        (64, 128, 192, 256), range(8, 257, 8), (1, 2), shapes, SWIZZLES
    ):
        cluster_m, cluster_n, split_k = shape
        for store in ["global"] if split_k > 1 else stores:
            config = with_most_stages(
                replace(
                    base, tile_m=tile_m, tile_n=tile_n, warpgroups=warpgroups,
                    tile_k=(swizzle_bytes or 128) // dtype(problem.a).bytes,
                    cluster_m=cluster_m, cluster_n=cluster_n, split_k=split_k,
                    swizzle_bytes=swizzle_bytes, store=str(store),
                ),
                MAX_STAGES if tile_m == 64 else MOST_STAGES,
            )  # fmt: skip
            yield with_refusal(with_few_rows(problem, config))

"""Which configuration of gemm_sm90 serves a problem: a default, and the grid of all."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ptxgen.config_rules import GRIDS_KEPT, first_legal, with_most_stages, with_refusal
from ptxgen.dtypes import dtype
from ptxgen.epilogue import D_SCALE_BLOCK
from ptxgen.kernels.agreement import check_known, static_fields
from ptxgen.kernels.sm90_config import NAME, Config
from ptxgen.kernels.sm90_operands import check_formats
from ptxgen.kernels.sm90_rules import SWIZZLES
from ptxgen.kernels.wgmma_config import MAX_STAGES
from ptxgen.layout import MMA_M, align_up
from ptxgen.operand_maps import d_fits_tma
from ptxgen.problem import Gemm

MOST_STAGES = 8
"""Stages beyond which more are not chosen unasked, but for small tiles."""
LEAST_STREAM_STAGES = 4
STREAM_BYTES = 72 * 1024
"""Bytes of B that the rings of tiles of 64 rows keep on their way to one SM, where B streams from
HBM: more make HBM slower, by up to 6 % at 4096x7168, and less than 56 KiB leaves it idle (measured
on an H200)."""
SHARES = (*itertools.product((64, 128, 192, 256), (1, 2)), (192, 3))
"""(tile_m, warpgroups) of the grid: three warpgroups have registers for a block of 64 rows each."""
SPARING_SHARES = ((128, 2), (192, 3))
"""Those of the grid that need the fewest registers beside promoted sums, for want of others."""


def default_config(problem: Gemm, **chosen: int | str) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    check_known(NAME, Config, chosen)
    check_formats(problem)
    swizzle = int(chosen.get("swizzle_bytes", 128))
    values: dict[str, int | str] = dict(static_fields(problem, Config))
    values["tile_k"] = (swizzle or 128) // dtype(problem.a).bytes
    tiles = [chosen["tile_n"]] if "tile_n" in chosen else _tile_n_candidates(problem)
    stores = _store_candidates(problem, chosen)

    def candidates() -> Iterator[Config]:
        for (tile_m, warpgroups), tile_n, store in itertools.product(
            _share_candidates(problem, chosen), tiles, stores
        ):
            share = {"tile_m": tile_m, "warpgroups": warpgroups}
            config = Config(**{**values, **share, **chosen, "tile_n": tile_n, "store": store})  # type: ignore[arg-type]
            config.check_values()  # before stages are counted: their bytes divide what there is
            if "a_rows" not in chosen:
                config = with_few_rows(config, few_rows(problem.m))
            yield config if "stages" in chosen else with_most_stages(config, ring_limit(config))

    return first_legal(candidates())


def few_rows(m: int) -> int:
    """Rows of A that are loaded of a tile of 64 where the problem has no more; 0 = all."""
    return next((rows for rows in (8, 16, 32) if m <= rows), 0)


def ring_limit(config: Config) -> int:
    """Stages beyond which more are not chosen unasked."""
    if config.tile_m != MMA_M:
        return MOST_STAGES
    stream_bytes = STREAM_BYTES // config.ctas_per_sm
    return max(LEAST_STREAM_STAGES, min(MAX_STAGES, stream_bytes // config.b_tile.nbytes))


def with_few_rows(config: Config, rows: int) -> Config:
    """The config, with only so many rows of A loaded if it can."""
    return replace(config, a_rows=rows if config.can_load_few_rows else 0)


def _share_candidates(
    problem: Gemm, chosen: dict[str, int | str]
) -> list[tuple[int | str, int | str]]:
    """(tile_m, warpgroups) by preference: a tile that the rows fill; if nothing was chosen, then
    those that need fewer registers."""
    tile_m: int | str = 64 if problem.m <= 64 or chosen.get("warpgroups") == 1 else 128
    if chosen.get("warpgroups") == 3:
        tile_m = 192
    tile_m = chosen.get("tile_m", tile_m)
    share = (tile_m, chosen.get("warpgroups", 1 if int(tile_m) % 128 else 2))
    free = not chosen.keys() & {"tile_m", "warpgroups"}
    return [share, *(SPARING_SHARES if free else ())]


def _tile_n_candidates(problem: Gemm) -> list[int]:
    """tile_n by preference: as wide as registers allow, no wider than D. Of an empty D, any serves,
    and the widest meets every rule of epilogues."""
    step = 16
    if problem.epilogue.d_scale == "group":
        step = D_SCALE_BLOCK * (2 if problem.epilogue.gated else 1)
    most = 256 if problem.accumulate == "fast" else 128
    return list(range(min(most, align_up(problem.n or most, step)), 0, -8))


def _store_candidates(problem: Gemm, chosen: dict[str, int | str]) -> list[int | str]:
    """store by preference: deferred ones overlap the most, global ones serve every D."""
    if "store" in chosen:
        return [chosen["store"]]
    if chosen.get("split_k", 1) != 1:
        return ["global"]
    defers = problem.accumulate == "fast" and dtype(problem.d).bytes == 2
    stores: list[int | str] = ["deferred", "tma"]
    if not d_fits_tma(problem):
        stores = ["deferred_global", "global"]
    return stores if defers else stores[1:]


def configs(
    problem: Gemm, swizzles: Sequence[int] = SWIZZLES
) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    base = replace(
        default_config(problem), tile_m=64, tile_n=8, warpgroups=1, stages=1,
        a_rows=few_rows(problem.m),
    )  # fmt: skip
    stores = tuple(map(str, _store_candidates(problem, {})))
    yield from _grid(base, stores, tuple(swizzles))


@lru_cache(maxsize=GRIDS_KEPT)
def _grid(
    base: Config, stores: tuple[str, ...], swizzles: tuple[int, ...]
) -> tuple[tuple[Config, str | None], ...]:
    """The grid for what `base` says of formats and scales, with verdicts."""
    fields = {name: getattr(base, name) for name in base.__dataclass_fields__}
    shapes = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 4), (1, 1, 8)]
    most: dict[tuple[object, ...], int] = {}  # stages do not depend on who shares tiles
    found = []
    for (tile_m, warpgroups), tile_n, shape, swizzle_bytes in itertools.product(
        SHARES, range(8, 257, 8), shapes, swizzles
    ):
        cluster_m, cluster_n, split_k = shape
        for store in ("global",) if split_k > 1 else stores:
            fields |= {
                "tile_m": tile_m, "tile_n": tile_n, "warpgroups": warpgroups,
                "tile_k": (swizzle_bytes or 128) // dtype(base.a).bytes,
                "cluster_m": cluster_m, "cluster_n": cluster_n, "split_k": split_k,
                "swizzle_bytes": swizzle_bytes, "store": store,
            }  # fmt: skip
            config = Config(**fields)
            if base.a_rows:
                config = with_few_rows(config, base.a_rows)
            ring = (
                tile_m, tile_n, warpgroups, swizzle_bytes, config.stores_by_tma, split_k > 1,
                config.a_rows,
            )  # fmt: skip
            if ring not in most:
                most[ring] = with_most_stages(config, ring_limit(config)).stages
            found.append(with_refusal(replace(config, stages=most[ring])))
    return tuple(found)

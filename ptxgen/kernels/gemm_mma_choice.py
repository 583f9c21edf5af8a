"""Configs of gemm_mma that are chosen by default, and the grid that a tuner tries."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from ptxgen.config_rules import GRIDS_KEPT, first_legal, with_refusal
from ptxgen.dtypes import dtype
from ptxgen.kernels.agreement import check_known, static_fields
from ptxgen.kernels.gemm_mma_config import (
    FP4_KINDS,
    MAX_STAGES,
    MIN_STAGES,
    NAME,
    TARGET,
    TARGETS,
    TILE_K_BYTES,
    Config,
    copy_sizes,
    mma_kind,
)
from ptxgen.kernels.gemm_mma_operands import check_operands, widest_access
from ptxgen.problem import Gemm
from ptxgen.warp_tiles import BLOCK_ROWS

NUM_SMS = 132
"""SMs of an H100 or H200, when no device is given."""
SMALLEST_SPLIT = 32 * 32
"""Tiles of more elements are halved by default while that leaves at most one per SM."""
RING_BYTES = 1 << 16
"""What small tiles keep under way by more stages than four, by default."""


def default_config(problem: Gemm, **chosen: int | str) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    check_operands(problem)
    check_known(NAME, Config, chosen)
    values: dict[str, int | str] = dict(static_fields(problem, Config))
    values["kind"] = chosen.get("kind") or mma_kind(problem.a, problem.b, problem.scale)
    for operand in ("a", "b"):
        sizes = copy_sizes(getattr(problem, operand), values["kind"] in FP4_KINDS)
        widest = widest_access(problem, operand)
        # rows that nothing fits are refused by plan, which says why
        values[f"{operand}_copy_bytes"] = next((c for c in sizes if c <= widest), sizes[-1])
    d_bytes = dtype(problem.d).bytes
    values["d_store_bytes"] = min(2 * d_bytes, max(d_bytes, widest_access(problem, "d")))
    first = Config(**{**values, **chosen})  # type: ignore[arg-type]
    first.check_kind()

    def candidates() -> Iterator[Config]:
        for tile in _default_tiles(problem, chosen, first.k_tiles):
            config = Config(**{**values, **tile, **chosen})  # type: ignore[arg-type]
            if "stages" not in chosen and config.target in TARGETS and config.stage_bytes:
                wanted = max(4, min(MAX_STAGES, RING_BYTES // config.stage_bytes))
                most = max(MIN_STAGES, min(wanted, config.stages_that_fit))
                config = replace(config, stages=most)
            yield config

    return first_legal(candidates())


def _default_tiles(
    problem: Gemm, chosen: dict[str, int | str], k_tiles: tuple[int, ...]
) -> Iterator[dict[str, int | str]]:
    """Tiles and warps, the best first: no larger than the problem, small enough for all SMs."""
    tile_m, tile_n = (
        next((t for t in (16, 32, 64) if size <= t), 128) for size in (problem.m, problem.n)
    )
    while tile_m * tile_n > SMALLEST_SPLIT and 2 * _num_tiles(problem, tile_m, tile_n) <= NUM_SMS:
        tile_m, tile_n = _halved(tile_m, tile_n)
    while True:
        rows, columns = (
            int(chosen.get(name, tile)) for name, tile in (("tile_m", tile_m), ("tile_n", tile_n))
        )
        deep = min(rows, columns) < 32
        for tile_k in k_tiles[::-1] if deep else k_tiles[:1]:
            for num_warps in (4, 8):
                warps_m, warps_n = _warps(rows, columns, num_warps)
                yield {
                    "tile_m": tile_m,
                    "tile_n": tile_n,
                    "tile_k": tile_k,
                    "warps_m": warps_m,
                    "warps_n": warps_n,
                }
        if tile_m == tile_n == BLOCK_ROWS:
            return
        tile_m, tile_n = _halved(tile_m, tile_n)


def _halved(tile_m: int, tile_n: int) -> tuple[int, int]:
    return (tile_m // 2, tile_n) if tile_m >= tile_n else (tile_m, tile_n // 2)


def _warps(tile_m: int, tile_n: int, most: int) -> tuple[int, int]:
    """Up to `most` warps whose parts are as square as can be, as those load the least fragments."""
    pairs = [
        (m, n)
        for m in (1, 2, 4, 8)
        for n in (1, 2, 4, 8)
        if m * n <= most and m * BLOCK_ROWS <= tile_m and n * BLOCK_ROWS <= tile_n
    ]
    return min(pairs or [(1, 1)], key=lambda p: (-p[0] * p[1], tile_m // p[0] + tile_n // p[1]))


def _num_tiles(problem: Gemm, tile_m: int, tile_n: int) -> int:
    return -(-problem.m // tile_m) * -(-problem.n // tile_n)


def configs(problem: Gemm, target: str = TARGET) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    base = default_config(problem, target=target)
    yield from _grid(
        replace(base, tile_m=128, tile_n=128, tile_k=32, warps_m=2, warps_n=2, stages=4)
    )


@lru_cache(maxsize=GRIDS_KEPT)
def _grid(base: Config) -> tuple[tuple[Config, str | None], ...]:
    """The grid for what `base` says of formats, scales and widths of access, with verdicts."""
    element_bytes = dtype(base.a).bytes
    return tuple(
        with_refusal(
            replace(
                base, tile_m=tile_m, tile_n=tile_n, tile_k=k_bytes // element_bytes,
                warps_m=warps_m, warps_n=warps_n, stages=stages,
            )
        )
        for tile_m in (16, 32, 64, 128, 256)
        for tile_n in (16, 32, 64, 128, 256)
        for k_bytes in TILE_K_BYTES
        for warps_m, warps_n in ((1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (2, 4), (4, 2))
        for stages in (3, 4, 6)
    )  # fmt: skip

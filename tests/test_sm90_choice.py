"""Which tile of gemm_sm90 the model takes where sums are promoted, as an H200 measured it."""

import pytest

from ptxgen.benchmark.sets import kind
from ptxgen.cost_model import estimate
from ptxgen.devices import GPU_MODELS
from ptxgen.kernels.gemm_sm90 import configs, default_config
from ptxgen.problem import Gemm
from ptxgen.selection import neighbours, rank

H200 = GPU_MODELS["H200"]
TWO, THREE = (128, 2), (192, 3)
"""(tile_m, warpgroups) of the tiles of 128 columns that were timed against each other."""
MEASURED_US = {
    (4096, 7168, 16384): {TWO: 819.70, THREE: 804.33},
    (4096, 4096, 7168): {TWO: 196.95, THREE: 217.78},
    (4096, 24576, 1536): {TWO: 290.78, THREE: 279.67},
    (4096, 7168, 2048): {TWO: 113.22, THREE: 115.31},
    (8192, 8192, 8192): {TWO: 949.38, THREE: 867.08},
    (4096, 32768, 512): {TWO: 166.27, THREE: 155.11},
    (4096, 2112, 7168): {TWO: 126.84, THREE: 106.73},
}
"""Microseconds of fp8-block on an H200: medians of five rounds at 690 W, store=tma, no cluster."""
CLEAR = 0.03
"""Differences below this say nothing about which tile is faster."""
CLEAR_SHAPES = [
    shape for shape, times in MEASURED_US.items() if abs(times[TWO] / times[THREE] - 1) > CLEAR
]


def block(shape: tuple[int, int, int]) -> Gemm:
    return kind("fp8-block").problem(shape)


@pytest.mark.parametrize("shape", CLEAR_SHAPES)
def test_the_tile_that_an_h200_runs_fastest_is_ranked_first(shape: tuple[int, int, int]) -> None:
    times = MEASURED_US[shape]
    best = rank(block(shape), H200)[0].config
    assert (best.tile_m, best.warpgroups) == min(times, key=lambda tile: times[tile])
    assert (best.tile_n, best.cluster_ctas) == (128, 1)


@pytest.mark.parametrize("tile", [TWO, THREE])
@pytest.mark.parametrize("shape", MEASURED_US)
def test_block_scales_are_predicted_near_what_an_h200_takes(
    shape: tuple[int, int, int], tile: tuple[int, int]
) -> None:
    tile_m, warpgroups = tile
    config = default_config(block(shape), tile_m=tile_m, warpgroups=warpgroups, tile_n=128)
    predicted_us = estimate(block(shape), config, H200).total * 1e6
    assert predicted_us == pytest.approx(MEASURED_US[shape][tile], rel=0.06)


@pytest.mark.parametrize("scale", ["none", "tensor", "rowcol", "block", "group"])
def test_three_warpgroups_are_in_the_grid_where_fp8_sums_are_promoted(scale: str) -> None:
    problem = Gemm(4096, 4096, 4096, "e4m3", "e4m3", scale=scale, accumulate="promoted")
    widest = max(c.tile_n for c, refused in configs(problem) if c.warpgroups == 3 and not refused)
    assert widest == (112 if scale == "rowcol" else 128)


@pytest.mark.parametrize(("a", "accumulate"), [("e4m3", "fast"), ("bf16", "promoted")])
def test_three_warpgroups_are_refused_where_sums_are_not_promoted_each_k_tile(
    a: str, accumulate: str
) -> None:
    refusals = [
        refused
        for config, refused in configs(Gemm(4096, 4096, 4096, a, a, accumulate=accumulate))
        if config.warpgroups == 3
    ]
    assert refusals
    assert all(refusals)


def test_the_tuner_steps_from_two_warpgroups_to_three() -> None:
    legal = [r.config for r in rank(block((4096, 4096, 7168)), H200)]
    assert (legal[0].tile_m, legal[0].warpgroups) == TWO
    assert any((c.tile_m, c.warpgroups) == THREE for c in neighbours(legal[0], legal))


def test_three_warpgroups_take_192_rows_unasked() -> None:
    assert default_config(block((4096, 4096, 7168)), warpgroups=3).tile_m == 192


SPLIT_MEASURED_US = {
    ("fp8-tensor", (128, 2112, 7168), (128, 136, 1, 4)): 12.5,
    ("fp8-tensor", (300, 2112, 7168), (128, 136, 1, 4)): 23.7,
    ("fp8-tensor", (300, 2112, 7168), (128, 192, 2, 4)): 27.0,
    ("fp8-block", (64, 576, 7168), (64, 72, 1, 4)): 6.7,
    ("fp8-block", (128, 576, 7168), (64, 72, 1, 8)): 10.3,
    ("fp8-block", (300, 576, 7168), (64, 72, 1, 4)): 12.5,
}
"""Microseconds of (tile_m, tile_n, warpgroups, split_k) on an H200: medians of seven rounds."""


@pytest.mark.parametrize("measured", SPLIT_MEASURED_US, ids=str)
def test_splits_of_k_are_predicted_near_what_an_h200_takes(
    measured: tuple[str, tuple[int, int, int], tuple[int, int, int, int]],
) -> None:
    name, shape, (tile_m, tile_n, warpgroups, split_k) = measured
    problem = kind(name).problem(shape)
    config = default_config(
        problem, tile_m=tile_m, tile_n=tile_n, warpgroups=warpgroups, split_k=split_k
    )
    predicted_us = estimate(problem, config, H200).total * 1e6
    assert predicted_us == pytest.approx(SPLIT_MEASURED_US[measured], rel=0.25)


def test_k_stays_whole_where_memory_is_the_limit() -> None:
    assert rank(kind("fp8-tensor").problem((1, 7168, 16384)), H200)[0].config.split_k == 1

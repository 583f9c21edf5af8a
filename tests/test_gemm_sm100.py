"""gemm_sm100 computes D on the emulator. No Blackwell GPU was at hand."""

import itertools

import gemm_runs
import numpy as np
import pytest
from gemm_runs import run_gemm

from ptxgen.dtypes import dtype
from ptxgen.emission import make_plan
from ptxgen.emulator import SCHEDULES, EmulatorDevice, Options
from ptxgen.kernels import gemm_sm100, kernel_for
from ptxgen.kernels.gemm_sm100 import Config
from ptxgen.operands import make_operands
from ptxgen.problem import NARROW_FLOATS, Gemm
from ptxgen.renderer import render

TILE = 64


def is_exact(problem: Gemm, config: Config | None = None, options: Options | None = None) -> bool:
    config = config or gemm_sm100.default_config(problem)
    return gemm_runs.is_exact(EmulatorDevice(options), problem, config)


def case(problem: Gemm, **chosen: int | str) -> bool:
    return is_exact(problem, gemm_sm100.default_config(problem, **chosen))


CTAS = [
    {"cta_group": 1, "tile_m": 64},
    {"cta_group": 1, "tile_m": 128},
    {"cta_group": 2, "tile_m": 64},
    {"cta_group": 2, "tile_m": 128},
]
"""The four accumulator layouts: F, D, B and A."""


def ctas_id(ctas: dict[str, int]) -> str:
    return f"g{ctas['cta_group']}-m{ctas['tile_m']}"


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("ctas", CTAS, ids=ctas_id)
@pytest.mark.parametrize("a", ["bf16", "e4m3", "tf32"])
def test_operand_layouts_are_exact(a: str, ctas: dict[str, int], layout: str) -> None:
    assert case(Gemm(272, 80, 208, a, a, layout=layout), tile_n=TILE, stages=2, **ctas)


@pytest.mark.parametrize("types", [("f16", "f16"), ("tf32", "tf32"), ("s8", "s8"), ("u8", "s8")])
@pytest.mark.parametrize("ctas", CTAS, ids=ctas_id)
def test_wide_and_integer_formats_are_exact(types: tuple[str, str], ctas: dict[str, int]) -> None:
    assert case(Gemm(200, 72, 208, *types, "f32"), tile_n=TILE, **ctas)


@pytest.mark.parametrize(
    "types", list(itertools.product(NARROW_FLOATS, repeat=2)), ids=lambda t: "-".join(t)
)
def test_every_pair_of_narrow_floats_is_exact(types: tuple[str, str]) -> None:
    assert case(Gemm(200, 72, 256, *types, a_stride=384, b_stride=256), tile_n=TILE)


def test_integer_sums_can_be_stored_as_they_are() -> None:
    assert case(Gemm(200, 72, 256, "s8", "u8", "s32"))


@pytest.mark.parametrize("d", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("scale", ["none", "tensor", "rowcol"])
@pytest.mark.parametrize("store", ["tma", "global"])
@pytest.mark.parametrize("ctas", CTAS, ids=ctas_id)
def test_scales_and_stores_are_exact(ctas: dict[str, int], store: str, scale: str, d: str) -> None:
    problem = Gemm(200, 88, 72, d=d, scale=scale, alpha=0.5, d_stride=104)
    assert case(problem, store=store, tile_n=48 if ctas["tile_m"] == 64 else 80, **ctas)


def test_odd_rows_of_d_are_stored_without_tma() -> None:
    assert case(Gemm(65, 63, 64, d_stride=65, d_alignment=2))


CLUSTERS = [(1, 1, 1), (1, 2, 1), (1, 1, 2), (1, 2, 2), (1, 4, 1), (2, 2, 1), (2, 4, 1), (2, 2, 2)]


@pytest.mark.parametrize("scheduler", ["static", "clc"])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_clusters_and_schedulers_are_exact(
    layout: str, cluster: tuple[int, int, int], scheduler: str
) -> None:
    group, cluster_m, cluster_n = cluster
    assert case(
        Gemm(700, 152, 200, layout=layout, a_stride=704), cta_group=group, cluster_m=cluster_m,
        cluster_n=cluster_n, scheduler=scheduler, tile_n=TILE, stages=3,
    )  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("scheduler", ["static", "clc"])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_any_order_of_events_gives_the_same_bits(
    schedule: str, scheduler: str, group: int, seed: int
) -> None:
    problem = Gemm(600, 200, 200)
    config = gemm_sm100.default_config(
        problem, cta_group=group, scheduler=scheduler, tile_m=128, tile_n=TILE, stages=2
    )
    options = Options(schedule=schedule, seed=seed, resident_clusters=2)
    assert is_exact(problem, config, options)


@pytest.mark.parametrize("swizzle", gemm_sm100.SWIZZLES)
@pytest.mark.parametrize("ctas", CTAS, ids=ctas_id)
@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_swizzles_are_exact(layout: str, ctas: dict[str, int], swizzle: int) -> None:
    problem = Gemm(136, 72, 104, layout=layout)
    assert case(problem, swizzle_bytes=swizzle, tile_n=32, **ctas)


@pytest.mark.parametrize("k_tiles", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("accumulators", [1, 2])
def test_k_around_the_number_of_stages_is_exact(
    k_tiles: int, stages: int, accumulators: int
) -> None:
    problem = Gemm(260, 136, 64 * k_tiles)
    for group in (1, 2):
        assert case(problem, cta_group=group, stages=stages, accumulators=accumulators, tile_n=TILE)


@pytest.mark.parametrize("k", [1, 8, 63, 65, 136])
def test_k_that_is_no_multiple_of_anything_is_exact(k: int) -> None:
    assert case(Gemm(130, 72, k, a_stride=144, b_stride=144), tile_n=TILE)


@pytest.mark.parametrize("delta", [-1, 0, 1])
@pytest.mark.parametrize("group", [1, 2])
def test_sizes_around_the_tile_are_exact(group: int, delta: int) -> None:
    problem = Gemm(128 * group + delta, 64 + 8 * delta, 64, d_stride=80)
    assert case(problem, cta_group=group, tile_m=128, tile_n=TILE)


@pytest.mark.parametrize("tile_n", [*range(8, 257, 24), 256])
@pytest.mark.parametrize("d", ["bf16", "f32"])
def test_narrow_tiles_of_64_rows_are_exact(tile_n: int, d: str) -> None:
    assert case(Gemm(64, 264, 64, d=d), cta_group=1, tile_m=64, tile_n=tile_n)


@pytest.mark.parametrize("tile_n", [*range(16, 257, 48), 256])
@pytest.mark.parametrize("ctas", CTAS[1:], ids=ctas_id)
def test_widths_are_exact(ctas: dict[str, int], tile_n: int) -> None:
    assert case(Gemm(256, 264, 64), tile_n=tile_n, **ctas)


@pytest.mark.parametrize("target", gemm_sm100.TARGETS)
def test_targets_find_the_kernel(target: str) -> None:
    problem = Gemm(512, 512, 512)
    assert kernel_for(problem, target) is gemm_sm100
    text = render(make_plan(problem, arch=target)).text
    assert f".target {target}\n" in text


def test_two_problems_of_one_config_have_one_text() -> None:
    config = gemm_sm100.default_config(Gemm(512, 512, 512))
    texts = {
        render(gemm_sm100.plan(Gemm(m, 520, k, alpha=alpha), config)).text
        for m, k, alpha in ((512, 512, 1.0), (40, 4096, 2.0))
    }
    assert len(texts) == 1


SWAPPED = [
    {"cta_group": 1, "tile_n": 64},
    {"cta_group": 1, "tile_n": 128},
    {"cta_group": 2, "tile_n": 128, "cluster_n": 2},
]
"""The accumulator layouts of swapped operands: F, D and A."""


def swapped_id(ctas: dict[str, int]) -> str:
    return f"g{ctas['cta_group']}-n{ctas['tile_n']}"


def _wrong_numbers_of_tokens(a: str, ctas: dict[str, int]) -> list[int]:
    """One text for all: the width of the MMA follows the tokens at run time."""
    n, k = ctas["tile_n"] * ctas["cta_group"], 256 // dtype(a).bits * 8
    config = gemm_sm100.default_config(
        Gemm(256, n, k, a, a), swap_ab=True, tile_m=256, stages=2, **ctas
    )
    return [m for m in range(1, 257) if not is_exact(Gemm(m, n, k, a, a), config)]


@pytest.mark.parametrize("ctas", SWAPPED, ids=swapped_id)
def test_every_number_of_tokens_is_exact_when_swapped(ctas: dict[str, int]) -> None:
    assert _wrong_numbers_of_tokens("bf16", ctas) == []


@pytest.mark.slow
@pytest.mark.parametrize("ctas", SWAPPED, ids=swapped_id)
@pytest.mark.parametrize("a", ["tf32", "e4m3", "e2m1", "s8"])
def test_every_number_of_tokens_is_exact_in_every_kind(a: str, ctas: dict[str, int]) -> None:
    assert _wrong_numbers_of_tokens(a, ctas) == []


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("ctas", SWAPPED, ids=swapped_id)
@pytest.mark.parametrize("store", ["tma", "global"])
def test_swapped_layouts_are_exact(layout: str, ctas: dict[str, int], store: str) -> None:
    problem = Gemm(152, 264, 208, layout=layout)
    assert case(problem, swap_ab=True, store=store, tile_m=64, stages=2, **ctas)


@pytest.mark.parametrize(
    "types", [("f16", "f16"), ("tf32", "tf32"), ("s8", "u8"), ("e2m1", "e3m2")]
)
@pytest.mark.parametrize("scale", ["none", "tensor", "rowcol"])
@pytest.mark.parametrize(("d", "store"), [("bf16", "tma"), ("f16", "tma"), ("f32", "global")])
def test_swapped_formats_and_scales_are_exact(
    types: tuple[str, str], scale: str, d: str, store: str
) -> None:
    problem = Gemm(50, 200, 256, *types, d, scale=scale, alpha=0.5)
    assert case(problem, swap_ab=True, store=store)


@pytest.mark.parametrize("scheduler", ["static", "clc"])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_swapped_clusters_are_exact(cluster: tuple[int, int, int], scheduler: str) -> None:
    group, cluster_n, cluster_m = cluster
    assert case(
        Gemm(300, 700, 200, layout="tn", a_stride=304, b_stride=704), swap_ab=True, cta_group=group,
        cluster_m=cluster_m, cluster_n=cluster_n, scheduler=scheduler, tile_m=48, tile_n=128,
        stages=3,
    )  # fmt: skip


@pytest.mark.parametrize("k", [0, 1, 64, 200])
@pytest.mark.parametrize("m", [1, 20])
def test_swapped_k_tails_are_exact(m: int, k: int) -> None:
    problem = Gemm(m, 136, k, a_stride=208, b_stride=208)
    assert case(problem, swap_ab=True, accumulators=1, stages=1)


def test_swapping_changes_no_bit() -> None:
    problem = Gemm(40, 264, 512, "e4m3", "e4m3", scale="rowcol", alpha=0.3)
    operands = make_operands(problem, "random")
    found = []
    for swapped in (False, True):
        config = gemm_sm100.default_config(problem, swap_ab=swapped)
        run = run_gemm(EmulatorDevice(Options(exact=True)), problem, config, operands)
        found.append(run.d.view(np.uint16))
    assert np.array_equal(*found)

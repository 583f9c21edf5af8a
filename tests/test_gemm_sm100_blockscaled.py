"""gemm_sm100_blockscaled computes D on the emulator. No Blackwell GPU was at hand."""

import itertools
import random

import gemm_runs
import pytest
from config_samples import assemble_cleanly, has_lowest_version

from ptxgen.emulator import SCHEDULES, EmulatorDevice, Options
from ptxgen.errors import ConfigError
from ptxgen.kernels import gemm_sm100_blockscaled, kernel_for
from ptxgen.kernels.gemm_sm100_blockscaled import Config
from ptxgen.problem import NARROW_FLOATS, Gemm


def is_exact(problem: Gemm, config: Config, options: Options | None = None) -> bool:
    return gemm_runs.is_exact(EmulatorDevice(options), problem, config)


def case(problem: Gemm, **chosen: int | str) -> bool:
    return is_exact(problem, gemm_sm100_blockscaled.default_config(problem, **chosen))


KINDS = [
    ("e4m3", "e5m2", "mx32", "mxf8f6f4"),
    ("e5m2", "e4m3", "mx128", "mxf8f6f4"),
    ("e2m1", "e2m1", "mx32", "mxf4"),
    ("e2m1", "e2m1", "mx32", "mxf4nvf4"),
    ("e2m1", "e2m1", "nv16", "mxf4nvf4"),
]


def problem_of(kind: tuple[str, str, str, str], m: int, n: int, k: int, **more: object) -> Gemm:
    a, b, scale, _ = kind
    return Gemm(m, n, k, a, b, scale=scale, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("tile_n", [64, 128, 192, 256])
def test_kinds_and_widths_are_exact(
    kind: tuple[str, str, str, str], group: int, tile_n: int
) -> None:
    problem = problem_of(kind, 300, 264, 416, alpha=0.5)
    assert case(problem, kind=kind[3], cta_group=group, tile_n=tile_n)


@pytest.mark.parametrize(
    "types", list(itertools.product(NARROW_FLOATS, repeat=2)), ids=lambda t: "-".join(t)
)
@pytest.mark.parametrize("scale", ["mx32", "mx128"])
def test_every_pair_of_narrow_floats_is_exact(types: tuple[str, str], scale: str) -> None:
    problem = Gemm(136, 72, 640, *types, scale=scale)
    assert case(problem, kind="mxf8f6f4", tile_n=128)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("k", [0, 2, 30, 32, 34, 126, 128, 130, 254, 258, 1026])
def test_k_tails_are_exact(kind: tuple[str, str, str, str], k: int) -> None:
    problem = problem_of(kind, 130, 72, k, a_stride=1056, b_stride=1056)
    assert case(problem, kind=kind[3], tile_n=64, stages=3)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize(("stages", "slots"), [(1, 1), (3, 1), (3, 2), (3, 3)])
@pytest.mark.parametrize("accumulators", [1, 2])
def test_any_number_of_slots_for_scales_is_exact(
    kind: tuple[str, str, str, str], stages: int, slots: int, accumulators: int
) -> None:
    problem = problem_of(kind, 260, 136, 1280)
    assert case(
        problem, kind=kind[3], stages=stages, scale_slots=slots, accumulators=accumulators,
        tile_n=64, cta_group=2,
    )  # fmt: skip


@pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
@pytest.mark.parametrize("group", [1, 2])
def test_transposed_fp8_is_exact(layout: str, group: int) -> None:
    problem = Gemm(272, 144, 208, "e4m3", "e4m3", layout=layout, scale="mx32")
    assert case(problem, cta_group=group, tile_n=64)


@pytest.mark.parametrize("scheduler", ["static", "clc"])
@pytest.mark.parametrize(
    "cluster", [(1, 2, 1), (1, 1, 2), (1, 2, 2), (2, 2, 1), (2, 4, 1), (2, 2, 2)], ids=str
)
def test_clusters_and_schedulers_are_exact(cluster: tuple[int, int, int], scheduler: str) -> None:
    group, cluster_m, cluster_n = cluster
    assert case(
        Gemm(700, 328, 384, "e4m3", "e2m1", "f32", scale="mx32"), cta_group=group, tile_n=64,
        cluster_m=cluster_m, cluster_n=cluster_n, scheduler=scheduler, stages=2,
    )  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("slots", [1, 3])
def test_any_order_of_events_gives_the_same_bits(
    schedule: str, kind: tuple[str, str, str, str], slots: int
) -> None:
    problem = problem_of(kind, 600, 200, 800)
    config = gemm_sm100_blockscaled.default_config(
        problem, kind=kind[3], stages=3, scale_slots=slots, tile_n=64
    )
    assert is_exact(problem, config, Options(schedule=schedule, seed=3, resident_clusters=2))


@pytest.mark.parametrize("target", gemm_sm100_blockscaled.TARGETS)
@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_kinds_assemble_with_the_lowest_version_of_each_target(
    kind: tuple[str, str, str, str], target: str
) -> None:
    problem = problem_of(kind, 512, 512, 512)
    assert kernel_for(problem, target) is gemm_sm100_blockscaled
    config = gemm_sm100_blockscaled.default_config(problem, target=target, kind=kind[3])
    plan = gemm_sm100_blockscaled.plan(problem, config)
    assemble_cleanly(plan)
    assert has_lowest_version(plan)


@pytest.mark.slow
def test_the_grid_of_configs_assembles_without_spill_or_message() -> None:
    rng = random.Random(0)
    for kind, target in itertools.product(KINDS, gemm_sm100_blockscaled.TARGETS):
        problem = problem_of(kind, 512, 512, 512)
        legal = [c for c, why in gemm_sm100_blockscaled.configs(problem, target) if why is None]
        for config in rng.sample(legal, 12):
            assemble_cleanly(gemm_sm100_blockscaled.plan(problem, config))


@pytest.mark.parametrize(
    ("problem", "chosen", "message"),
    [
        (Gemm(256, 256, 255, "e2m1", "e2m1", scale="nv16", a_stride=256, b_stride=256), {},
         "multiple of 2; try .*k=256"),
        (Gemm(256, 256, 256, "e2m1", "e2m1", scale="nv16"), {"kind": "mxf4"}, "got 'nv16'"),
        (Gemm(256, 256, 256, "e4m3", "e2m1", scale="mx32"), {"kind": "mxf4"},
         "e2m1 with e2m1.*try kind=mxf8f6f4"),
        (Gemm(256, 256, 256, "e4m3", "e4m3", scale="mx32"), {"tile_n": 256, "cta_group": 2,
         "accumulators": 2}, "leave no room for scales.*try accumulators=1"),
        (Gemm(256, 256, 256, "e4m3", "e4m3", scale="mx32"), {"tile_n": 96}, "try tile_n=128"),
        (Gemm(256, 256, 256, "e4m3", "e4m3", scale="mx32"), {"tile_m": 64}, "must be 128"),
        (Gemm(256, 256, 256, "e4m3", "e4m3", scale="mx32"), {"stages": 2, "scale_slots": 3},
         "from 1 to stages=2"),
        (Gemm(256, 256, 256, "e4m3", "e4m3"), {}, "has no scale=none"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_by_name(
    problem: Gemm, chosen: dict[str, int | str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        gemm_sm100_blockscaled.plan(
            problem, gemm_sm100_blockscaled.default_config(problem, **chosen)
        )


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("m", [1, 15, 16, 17, 64, 65, 130, 255, 300])
def test_swapped_operands_are_exact(kind: tuple[str, str, str, str], group: int, m: int) -> None:
    problem = problem_of(kind, m, 264, 416)
    assert case(problem, kind=kind[3], swap_ab=True, cta_group=group, tile_m=192)

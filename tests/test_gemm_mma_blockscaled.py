"""gemm_mma on sm_120a: formats below 8 bits and block scales. No Blackwell GPU was at hand."""

import itertools
from typing import Any

import gemm_runs
import pytest
from config_samples import assemble_cleanly, has_lowest_version

from ptxgen.emulator import EmulatorDevice, Options
from ptxgen.emulator.checking import check
from ptxgen.errors import ConfigError
from ptxgen.kernels import gemm_mma, kernel_for, unit_of
from ptxgen.operands import make_operands
from ptxgen.problem import NARROW_FLOATS, Gemm
from ptxgen.renderer import render
from ptxgen.trial import buffer_contents
from ptxgen.verification import verify

KINDS = [
    ("e4m3", "e5m2", "mx32", "mxf8f6f4"),
    ("e2m1", "e4m3", "mx128", "mxf8f6f4"),
    ("e2m1", "e2m1", "mx32", "mxf4"),
    ("e2m1", "e2m1", "mx32", "mxf4nvf4"),
    ("e2m1", "e2m1", "nv16", "mxf4nvf4"),
]
Kind = tuple[str, str, str, str]


def problem_of(kind: Kind, m: int, n: int, k: int, **more: Any) -> Gemm:
    a, b, scale, _ = kind
    return Gemm(m, n, k, a, b, scale=scale, **more)


def config_of(problem: Gemm, **chosen: int | str) -> Any:
    return gemm_mma.default_config(problem, target="sm_120a", **chosen)


def is_exact(problem: Gemm, **chosen: int | str) -> bool:
    return gemm_runs.is_exact(EmulatorDevice(), problem, config_of(problem, **chosen))


@pytest.mark.parametrize("scale", ["none", "mx32", "mx128"])
@pytest.mark.parametrize(
    "types", list(itertools.product(NARROW_FLOATS, repeat=2)), ids=lambda t: "-".join(t)
)
def test_every_pair_of_narrow_floats_is_exact(types: tuple[str, str], scale: str) -> None:
    assert is_exact(Gemm(50, 40, 212, *types, scale=scale, a_stride=224, b_stride=224))


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("k", [0, 32, 60, 128, 196, 256, 516, 1100])
def test_k_tails_are_exact(kind: Kind, k: int) -> None:
    assert is_exact(problem_of(kind, 33, 24, k, a_stride=1120, b_stride=1120), kind=kind[3])


TILES = [
    (16, 16, 1, 1), (16, 128, 1, 4), (128, 16, 4, 1), (32, 64, 2, 1), (128, 64, 2, 4),
    (128, 32, 8, 1), (32, 128, 1, 8),
]  # fmt: skip


@pytest.mark.parametrize(("tile_m", "tile_n", "warps_m", "warps_n"), TILES)
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[1], KINDS[4]], ids="-".join)
def test_scales_find_the_rows_and_columns_of_every_tile(
    kind: Kind, tile_m: int, tile_n: int, warps_m: int, warps_n: int
) -> None:
    problem = problem_of(kind, tile_m + 24, tile_n + 24, 144, alpha=0.5)
    assert is_exact(
        problem, tile_m=tile_m, tile_n=tile_n, warps_m=warps_m, warps_n=warps_n, stages=3,
        tile_k=128,
    )  # fmt: skip


@pytest.mark.parametrize("tile_k", [128, 256])
@pytest.mark.parametrize("kind", KINDS[2:], ids="-".join)
def test_depths_of_fp4_tiles_are_exact(kind: Kind, tile_k: int) -> None:
    assert is_exact(problem_of(kind, 40, 72, 700), kind=kind[3], tile_k=tile_k)


@pytest.mark.parametrize("stride", [320, 304, 296, 292, 290])
def test_every_size_of_copy_of_fp4_is_exact(stride: int) -> None:
    assert is_exact(problem_of(KINDS[4], 40, 40, 288, a_stride=stride, b_stride=stride))


@pytest.mark.parametrize(("stride", "copy_bytes"), [(336, 8), (328, 4)])
def test_sizes_of_copies_that_are_unpacked_are_exact(stride: int, copy_bytes: int) -> None:
    problem = Gemm(40, 40, 300, "e2m1", "e3m2", scale="mx32", a_stride=stride, b_stride=336)
    config = config_of(problem)
    assert (config.a_copy_bytes, config.b_copy_bytes) == (copy_bytes, 4)
    assert gemm_runs.is_exact(EmulatorDevice(), problem, config)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_random_data_sums_bit_for_bit_like_the_model(kind: Kind) -> None:
    problem = problem_of(kind, 40, 48, 320, d="f32")
    config, operands = config_of(problem, kind=kind[3]), make_operands(problem, "random", seed=1)
    run = gemm_runs.run_gemm(EmulatorDevice(Options(exact=True)), problem, config, operands)
    assert verify(problem, operands, run.d, exact=True, unit=unit_of(config)).ok


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[1], KINDS[4]], ids="-".join)
def test_strict_checks_find_nothing(kind: Kind) -> None:
    problem = problem_of(kind, 50, 40, 640)
    plan = gemm_mma.plan(problem, config_of(problem, stages=3))
    operands = make_operands(problem, "integers")
    report = check(render(plan).text, plan.launch, buffer_contents(problem, operands), strict=True)
    assert report.findings == ()
    assert report.identical


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize("tile", [(128, 128, 2, 4), (64, 64, 2, 2)], ids=str)
def test_kinds_assemble_without_spill_at_the_lowest_version(
    kind: Kind, tile: tuple[int, int, int, int]
) -> None:
    problem = problem_of(kind, 512, 512, 512)
    assert kernel_for(problem, "sm_120a") is gemm_mma
    names = ("tile_m", "tile_n", "warps_m", "warps_n")
    plan = gemm_mma.plan(
        problem, config_of(problem, kind=kind[3], **dict(zip(names, tile, strict=True)))
    )
    assemble_cleanly(plan)
    assert has_lowest_version(plan)


@pytest.mark.parametrize(
    ("problem", "chosen", "message"),
    [
        (Gemm(64, 64, 64, "e4m3", "e4m3", scale="mx32"), {"target": "sm_90a"}, "sm_120a only"),
        (Gemm(64, 64, 64, "e2m1", "e4m3"), {"target": "sm_89"}, "kind::f8f6f4 on sm_120a"),
        (Gemm(64, 64, 63, "e2m1", "e2m1", scale="nv16", a_stride=64, b_stride=64), {},
         "k of 63; must be a multiple of 2.*k=64"),
        (Gemm(64, 64, 66, "e2m3", "e4m3", scale="mx32", a_stride=68), {}, "multiple of 4"),
        (Gemm(64, 64, 64, "e4m3", "e4m3", layout="tn", scale="mx32"), {}, "K-major.*layout=nt"),
        (Gemm(64, 64, 64, "e4m3", "e4m3", scale="mx32", accumulate="promoted"), {}, "be fast"),
        (Gemm(64, 64, 64, "e4m3", "e2m1", scale="mx32"), {"kind": "mxf4"}, "try kind=mxf8f6f4"),
        (Gemm(64, 64, 64, "e4m3", "e4m3", scale="mx32"), {"kind": "f16"}, "got 'f16'"),
        (Gemm(64, 64, 64, "e4m3", "e4m3"), {"kind": "mxf4"}, "kind=mxf4 must be none"),
        (Gemm(64, 64, 64, "e2m1", "e4m3", a_stride=66), {}, "must be a multiple of 8, 4 bytes"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_by_name(
    problem: Gemm, chosen: dict[str, int | str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        gemm_mma.plan(problem, gemm_mma.default_config(problem, **{"target": "sm_120a", **chosen}))

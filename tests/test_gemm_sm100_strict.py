"""The strict checker finds nothing in the tcgen05 kernels, under any schedule."""

from typing import Any

import pytest

from ptxgen.emulator.checking import check
from ptxgen.kernels import gemm_sm100, gemm_sm100_blockscaled
from ptxgen.operands import make_operands
from ptxgen.problem import MICRO_SCALES, Gemm
from ptxgen.renderer import render
from ptxgen.trial import buffer_contents

Case = tuple[Gemm, dict[str, Any]]

CASES: list[Case] = [
    (Gemm(300, 136, 200), {"cta_group": 1, "tile_n": 64, "stages": 2}),
    (Gemm(600, 136, 200), {"cta_group": 2, "tile_n": 64, "stages": 2}),
    (Gemm(600, 136, 200), {"cta_group": 2, "tile_n": 64, "stages": 2, "scheduler": "clc"}),
    (Gemm(300, 136, 200), {"cta_group": 1, "tile_n": 64, "accumulators": 1, "stages": 1}),
    (Gemm(300, 136, 200), {"cta_group": 1, "cluster_m": 2, "tile_n": 64, "scheduler": "clc"}),
    (Gemm(700, 136, 200, layout="tn", a_stride=704),
     {"cta_group": 2, "cluster_m": 2, "cluster_n": 2, "tile_n": 64, "stages": 2}),
    (Gemm(700, 136, 200), {"cta_group": 2, "cluster_m": 4, "tile_n": 64, "stages": 3}),
    (Gemm(140, 72, 136, scale="rowcol"), {"cta_group": 2, "tile_m": 64, "store": "global"}),
    (Gemm(300, 136, 0), {"cta_group": 2, "tile_n": 64}),
    (Gemm(300, 136, 256, "e2m1", "e3m2"), {}),
    (Gemm(300, 136, 256, "s8", "s8", "f32"), {}),
    (Gemm(40, 328, 200), {"swap_ab": True, "cta_group": 2, "tile_m": 32}),
    (Gemm(40, 72, 200), {"swap_ab": True, "cta_group": 1, "tile_n": 64, "tile_m": 24}),
    (Gemm(40, 136, 200, d="f32"), {"swap_ab": True, "cta_group": 1, "scheduler": "clc"}),
    (Gemm(300, 136, 1280, "e4m3", "e5m2", scale="mx32"),
     {"tile_n": 64, "stages": 3, "scale_slots": 2}),
    (Gemm(300, 136, 640, "e4m3", "e2m1", scale="mx128"),
     {"cta_group": 1, "tile_n": 64, "stages": 2, "scheduler": "clc"}),
    (Gemm(300, 136, 1280, "e2m1", "e2m1", scale="nv16"),
     {"tile_n": 64, "stages": 3, "scale_slots": 1}),
    (Gemm(40, 136, 640, "e2m1", "e2m1", scale="mx32"), {"swap_ab": True}),
]  # fmt: skip


def case_id(case: Case) -> str:
    problem, chosen = case
    return "-".join((problem.a, problem.scale, *(f"{k}={v}" for k, v in chosen.items())))


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_strict_checks_find_nothing(case: Case) -> None:
    problem, chosen = case
    scaled = problem.scale in MICRO_SCALES
    kernel = gemm_sm100_blockscaled if scaled else gemm_sm100
    plan = kernel.plan(problem, kernel.default_config(problem, **chosen), num_sms=4)
    operands = make_operands(problem, "integers")
    report = check(render(plan).text, plan.launch, buffer_contents(problem, operands), strict=True)
    assert report.findings == ()
    assert report.identical
    assert [run.error for run in report.runs if run.error] == []

"""gemm_sm90 passes the strict checker in all its forms: no race, no undefined byte, same bits."""

from typing import Any

import pytest

from ptxgen.emulator.checking import check
from ptxgen.kernels import gemm_sm90
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.trial import buffer_contents

BLOCK = {"a": "e4m3", "b": "e4m3", "scale": "block", "accumulate": "promoted"}
GROUP = {**BLOCK, "scale": "group"}
FP8 = {"a": "e4m3", "b": "e5m2"}

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *((BLOCK, {"tile_n": n}) for n in (8, 40, 64, 112, 120, 128)),
    *((GROUP, {"tile_n": n}) for n in (24, 128)),
    (BLOCK, {"tile_m": 192, "warpgroups": 1, "tile_n": 40}),
    *((BLOCK, {"tile_m": 192, "warpgroups": 3, "tile_n": n}) for n in (40, 128)),
    ({**FP8, "accumulate": "promoted"},
     {"tile_m": 192, "warpgroups": 3, "cluster_m": 2, "tile_n": 48}),
    (BLOCK, {"stages": 1, "tile_n": 56}),
    (BLOCK, {"split_k": 4, "tile_n": 40}),
    (GROUP, {"split_k": 8, "tile_m": 64, "tile_n": 64}),
    (BLOCK, {"cluster_m": 2, "tile_n": 48}),
    ({**BLOCK, "scale_format": "ue8m0"}, {"tile_n": 48, "stages": 2}),
    ({**GROUP, "scale_format": "ue8m0x4"}, {"tile_n": 64, "cluster_m": 2}),
    ({**BLOCK, "d": "f32"}, {"store": "global", "tile_n": 96}),
    ({**FP8, "scale": "rowcol"}, {"split_k": 2}),
    ({**FP8, "scale": "rowcol"}, {"stages": 1, "store": "tma"}),
    ({**FP8, "scale": "tensor", "accumulate": "promoted"}, {"swizzle_bytes": 32, "tile_n": 24}),
    ({**FP8, "accumulate": "promoted"}, {"tile_m": 256, "tile_n": 48}),
    (FP8, {"store": "deferred", "tile_n": 24}),
    (FP8, {"store": "deferred", "tile_n": 136}),
    ({**FP8, "n": 133}, {"store": "deferred_global", "tile_n": 72}),
    ({**FP8, "n": 133}, {"store": "global", "tile_n": 128, "cluster_n": 2}),
    ({**FP8, "m": 13}, {"tile_n": 24}),
    ({**FP8, "m": 20, "scale": "tensor"}, {"tile_n": 40, "ctas_per_sm": 2}),
    ({**BLOCK, "m": 20}, {"tile_n": 40, "split_k": 2}),
    ({"layout": "tt", "d": "f32"}, {"swizzle_bytes": 0, "tile_n": 64}),
    ({"layout": "nn"}, {"cluster_n": 2, "tile_n": 64, "store": "deferred"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_strict_checks_find_nothing(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    fields, chosen = case
    problem = Gemm(**{"m": 136, "n": 136, "k": 656, **fields})
    plan = gemm_sm90.plan(problem, gemm_sm90.default_config(problem, **chosen), num_sms=2)
    contents = buffer_contents(problem, make_operands(problem, "integers"))
    report = check(render(plan).text, plan.launch, contents, strict=True, seeds=(0,))
    assert report.findings == ()
    assert report.identical


def test_scales_in_flight_are_waited_for_though_another_cta_beside_this_one_ends() -> None:
    problem = Gemm(15, 183, 624, "e4m3", "e4m3", scale="block", accumulate="promoted")
    config = gemm_sm90.default_config(problem, tile_n=64, store="global", stages=2)
    plan = gemm_sm90.plan(problem, config)
    contents = buffer_contents(problem, make_operands(problem, "integers"))
    report = check(
        render(plan).text, plan.launch, contents, strict=True, schedules=("random",),
        seeds=(3, 5, 8), resident_clusters=2,
    )  # fmt: skip
    assert report.findings == ()

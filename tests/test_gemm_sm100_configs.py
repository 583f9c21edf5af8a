"""Configurations of gemm_sm100: illegal ones are refused by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxgen.errors import ConfigError, ProblemError
from ptxgen.kernels import gemm_sm100
from ptxgen.problem import Gemm
from ptxgen.renderer import render

FIELDS = {
    "a": st.sampled_from(["e4m3", "e2m1", "e3m2", "bf16", "f16", "tf32", "s8", "f32", "int8"]),
    "b": st.sampled_from(["e4m3", "e2m3", "bf16", "f16", "tf32", "u8"]),
    "d": st.sampled_from(["bf16", "f16", "f32", "s32", "e4m3"]),
    "layout": st.sampled_from(["nt", "nn", "tn", "tt", "xx"]),
    "scale": st.sampled_from(["none", "tensor", "rowcol", "block", "other"]),
    "accumulate": st.sampled_from(["fast", "promoted", "other"]),
}
TUNED = {
    "target": st.sampled_from(["sm_100a", "sm_100f", "sm_103a", "sm_90a", "sm_100"]),
    "cta_group": st.integers(0, 3),
    "swap_ab": st.booleans(),
    "tile_m": st.integers(-64, 320),
    "tile_n": st.integers(-8, 300),
    "tile_k": st.sampled_from([0, 16, 32, 64, 128, 256]),
    "stages": st.integers(-1, 40),
    "cluster_m": st.integers(0, 5),
    "cluster_n": st.integers(0, 5),
    "accumulators": st.integers(0, 3),
    "scheduler": st.sampled_from(["static", "clc", "other"]),
    "swizzle_bytes": st.sampled_from([0, 16, 32, 64, 128, 256]),
    "store": st.sampled_from(["tma", "global", "other"]),
    "warpgroups": st.just(2),
}


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries(FIELDS), st.fixed_dictionaries({}, optional=TUNED))
def test_any_config_renders_or_is_refused_by_our_own_error(
    fields: dict[str, str], tuned: dict[str, int | str]
) -> None:
    try:
        problem = Gemm(100, 120, 256, **fields)  # type: ignore[arg-type]
        config = gemm_sm100.default_config(problem, **tuned)
        text = render(gemm_sm100.plan(problem, config)).text
    except (ConfigError, ProblemError):
        return
    assert text.startswith("//")


@pytest.mark.parametrize(
    ("problem", "chosen", "message"),
    [
        (Gemm(256, 256, 256, "s8", "s8"), {"target": "sm_103a"}, "kind::i8, which sm_103a lacks"),
        (Gemm(256, 256, 100, "e2m1", "e4m3", a_stride=128, b_stride=128), {},
         "rows of 100 elements of e2m1.*multiple of 128.*k=128"),
        (Gemm(256, 256, 256, "e2m1", "e2m1"), {"swizzle_bytes": 64}, "try swizzle=128"),
        (Gemm(256, 256, 256, "e2m1", "e2m1", layout="tt"), {}, "must be K-major"),
        (Gemm(256, 256, 256, "tf32", "tf32", layout="tt"), {"swizzle_bytes": 64},
         "atoms of 32 bytes.*try swizzle=128"),
        (Gemm(256, 256, 256), {"cta_group": 2, "cluster_m": 1}, "whole pairs.*try 2x1"),
        (Gemm(256, 256, 256), {"cta_group": 1, "tile_m": 128, "tile_n": 24},
         "multiple of 16.*try tile_n=32"),
        (Gemm(16, 256, 256), {"swap_ab": True, "cta_group": 2, "tile_n": 64},
         "swapped pair must be 128.*try cta_group=1"),
        (Gemm(16, 256, 256, d="f32"), {"swap_ab": True, "store": "tma"}, "try store=global"),
        (Gemm(256, 256, 256), {"warpgroups": 2}, "gemm_sm100 has no warpgroups"),
        (Gemm(256, 256, 256, "e4m3", "e4m3", accumulate="promoted"), {}, "must be fast"),
        (Gemm(256, 256, 256, scale="block"), {}, "has no scale=block"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_by_name(
    problem: Gemm, chosen: dict[str, int | str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        gemm_sm100.plan(problem, gemm_sm100.default_config(problem, **chosen))


def test_stage_hint_is_itself_legal() -> None:
    problem = Gemm(512, 512, 512)
    tile: dict[str, int | str] = {"tile_m": 128, "tile_n": 256, "cta_group": 1}
    with pytest.raises(ConfigError, match="try stages<=4") as caught:
        gemm_sm100.default_config(problem, stages=9, **tile)
    assert "232448" in str(caught.value)
    gemm_sm100.default_config(problem, stages=4, **tile)


def test_every_config_of_the_grid_has_a_verdict() -> None:
    verdicts = list(gemm_sm100.configs(Gemm(512, 512, 512)))
    assert sum(reason is None for _, reason in verdicts) > 400
    assert all(reason is None or reason for _, reason in verdicts)

"""Configurations of gemm_sm90: legal ones assemble cleanly, illegal ones are refused by name."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxgen.assembler import assemble
from ptxgen.errors import ConfigError, ProblemError
from ptxgen.kernels import gemm_sm90
from ptxgen.kernels.gemm_sm90 import Config
from ptxgen.problem import Gemm
from ptxgen.ptx.forms import min_version
from ptxgen.ptx.parser import parse
from ptxgen.renderer import render

CI_SAMPLE = 24
"""Configurations that CI assembles; `--all` assembles every corner."""


def corner_configs() -> list[Config]:
    """All tile, stage, swizzle, dtype, layout, scale, accumulation, store and cluster corners."""
    found = []
    types = [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2"),
             ("bf16", "bf16"), ("f16", "f16")]  # fmt: skip
    for (a, b), d, store in itertools.product(types, ("bf16", "f16", "f32"), ("tma", "global")):
        layouts = ("nt",) if a in ("e4m3", "e5m2") else ("nt", "nn", "tn", "tt")
        for layout, scale, accumulate in itertools.product(
            layouts, ("none", "tensor", "rowcol"), ("fast", "promoted")
        ):
            problem = Gemm(512, 512, 512, a, b, d, layout, scale, accumulate)
            for (tile_m, warpgroups), tile_n, swizzle in itertools.product(
                ((64, 1), (128, 1), (192, 1), (256, 1), (128, 2), (256, 2)),
                (8, 24, 64, 120, 128, 160, 184, 256),
                (0, 32, 64, 128),
            ):
                for cluster, stages in itertools.product(((1, 1), (2, 1), (1, 2)), (1, None)):
                    chosen: dict[str, int | str] = {
                        "tile_m": tile_m, "tile_n": tile_n, "warpgroups": warpgroups,
                        "swizzle_bytes": swizzle, "cluster_m": cluster[0],
                        "cluster_n": cluster[1], "store": store,
                    }  # fmt: skip
                    if stages:
                        chosen["stages"] = stages
                    try:
                        found.append(gemm_sm90.default_config(problem, **chosen))
                    except ConfigError:
                        continue
    return found


def covering_sample(configs: list[Config], count: int) -> list[Config]:
    """`count` configs that between them show as many pairs of fields as a greedy walk finds."""
    rng = random.Random(0)
    sample: list[Config] = []
    seen: set[tuple[object, ...]] = set()
    for _ in range(count):
        tried = rng.sample(configs, 200)
        best = max(tried, key=lambda c: len(_pairs(c) - seen))
        sample.append(best)
        seen |= _pairs(best)
    return sample


def _pairs(config: Config) -> set[tuple[object, ...]]:
    return set(itertools.combinations(vars(config).items(), 2))


def _assembles_cleanly(config: Config) -> None:
    problem = Gemm(512, 512, 512, config.a, config.b, config.d, config.layout, config.scale,
                   config.accumulate)  # fmt: skip
    plan = gemm_sm90.plan(problem, config)
    cubin = assemble(render(plan).text, plan.target)
    assert cubin.spill_bytes == 0
    assert cubin.messages == ()
    assert cubin.registers <= 255


def test_sample_of_corner_configs_assembles_without_spill_or_message() -> None:
    for config in covering_sample(corner_configs(), CI_SAMPLE):
        _assembles_cleanly(config)


@pytest.mark.slow
def test_many_corner_configs_assemble_without_spill_or_message() -> None:
    for config in covering_sample(corner_configs(), 400):
        _assembles_cleanly(config)


FIELDS = {
    "a": st.sampled_from(["e4m3", "e5m2", "bf16", "f16", "f32", "int8"]),
    "b": st.sampled_from(["e4m3", "e5m2", "bf16", "f16"]),
    "d": st.sampled_from(["bf16", "f16", "f32", "e4m3"]),
    "layout": st.sampled_from(["nt", "nn", "tn", "tt", "xx"]),
    "scale": st.sampled_from(["none", "tensor", "rowcol", "other"]),
    "accumulate": st.sampled_from(["fast", "promoted", "other"]),
}
TUNED = {
    "tile_m": st.integers(-64, 320),
    "tile_n": st.integers(-8, 300),
    "tile_k": st.sampled_from([0, 16, 32, 64, 128, 256]),
    "stages": st.integers(-1, 40),
    "cluster_m": st.integers(0, 4),
    "cluster_n": st.integers(0, 4),
    "warpgroups": st.integers(0, 4),
    "swizzle_bytes": st.sampled_from([0, 16, 32, 64, 128, 256]),
    "store": st.sampled_from(["tma", "global", "other"]),
}


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries(FIELDS), st.fixed_dictionaries({}, optional=TUNED))
def test_any_config_renders_or_is_refused_by_our_own_error(
    fields: dict[str, str], tuned: dict[str, int | str]
) -> None:
    try:
        problem = Gemm(100, 120, 144, **fields)  # type: ignore[arg-type]
        config = gemm_sm90.default_config(problem, **tuned)
        text = render(gemm_sm90.plan(problem, config)).text
    except (ConfigError, ProblemError) as error:
        text = str(error)
    assert text


def test_ptx_version_is_the_lowest_that_serves() -> None:
    for config in covering_sample(corner_configs(), 8):
        problem = Gemm(512, 512, 512, config.a, config.b, config.d, config.layout, config.scale,
                       config.accumulate)  # fmt: skip
        plan = gemm_sm90.plan(problem, config)
        version, _ = min_version(parse(render(plan).text), plan.target)
        assert version == plan.version


def test_stage_hint_is_itself_legal() -> None:
    problem = Gemm(512, 512, 512, "e4m3", "e4m3")
    with pytest.raises(ConfigError, match=r"try stages<=4") as caught:
        gemm_sm90.plan(problem, gemm_sm90.default_config(problem, stages=9, tile_m=128, tile_n=256))
    assert "232448" in str(caught.value)
    gemm_sm90.plan(problem, gemm_sm90.default_config(problem, stages=4, tile_m=128, tile_n=256))

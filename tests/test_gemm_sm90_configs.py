"""Configurations of gemm_sm90: legal ones assemble cleanly, illegal ones are refused by name."""

import random
from typing import Any

import pytest
from config_samples import assemble_cleanly, covering_sample, has_lowest_version
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxgen.arch import arch
from ptxgen.assembler import assemble
from ptxgen.epilogue import Epilogue
from ptxgen.errors import ConfigError, ProblemError
from ptxgen.inspection.sass import disassemble
from ptxgen.kernels import gemm_sm90
from ptxgen.kernels.gemm_sm90 import Config
from ptxgen.plans import Plan
from ptxgen.problem import Gemm
from ptxgen.renderer import render

CI_SAMPLE = 30
"""Configurations that CI assembles; `--all` assembles every corner."""


CORNERS: dict[str, list[Any]] = {
    "types": [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2"),
              ("bf16", "bf16"), ("f16", "f16")],
    "layout": ["nt", "nn", "tn", "tt"],
    "d": ["bf16", "f16", "f32", "e4m3"],
    "scale": ["none", "tensor", "rowcol", "block", "group"],
    "accumulate": ["fast", "promoted"],
    "store": ["tma", "deferred", "global", "deferred_global"],
    "shape": [(64, 1), (128, 1), (192, 1), (256, 1), (128, 2), (256, 2), (192, 3)],
    "tile_n": [8, 24, 64, 120, 128, 144, 184, 256],
    "swizzle": [0, 32, 64, 128],
    "cluster": [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 8)],
    "stages": [1, 2, None],
    "scale_format": ["f32", "ue8m0"],
    "epilogue": [
        {}, {"c": "bf16"}, {"c": "f32", "bias": "column", "bias_dtype": "f16"},
        {"bias": "column", "activation": "gelu"}, {"bias": "row", "amax": True},
        {"activation": "swiglu", "amax": True}, {"activation": "silu", "d_scale": "tensor"},
        {"d_scale": "group", "amax": True}, {"activation": "swiglu", "d_scale": "group"},
        {"c": "f16", "bias": "column", "activation": "gelu_tanh", "amax": True},
    ],
}  # fmt: skip
"""Corners of tiles, stages, swizzles, formats, scales, sums, stores, clusters and epilogues."""


def corner_configs(count: int) -> list[Config]:
    """`count` different legal configs, drawn from the product of CORNERS."""
    rng = random.Random(1)
    found: dict[Config, None] = {}
    while len(found) < count:
        c = {name: rng.choice(values) for name, values in CORNERS.items()}
        (a, b), (tile_m, warpgroups) = c["types"], c["shape"]
        cluster_m, cluster_n, split_k = c["cluster"]
        chosen = {
            "tile_m": tile_m, "tile_n": c["tile_n"], "warpgroups": warpgroups,
            "swizzle_bytes": c["swizzle"], "cluster_m": cluster_m, "cluster_n": cluster_n,
            "split_k": split_k, "store": c["store"],
        } | ({"stages": c["stages"]} if c["stages"] else {})  # fmt: skip
        try:
            problem = Gemm(
                512, 512, 512, a, b, c["d"], c["layout"], c["scale"], c["accumulate"],
                scale_format=c["scale_format"], epilogue=Epilogue(**c["epilogue"]),
            )  # fmt: skip
            found[gemm_sm90.default_config(problem, **chosen)] = None
        except (ConfigError, ProblemError):
            continue
    return list(found)


def plan_of(config: Config) -> Plan:
    epilogue = Epilogue(
        c=config.c, bias=config.bias, bias_dtype=config.bias_dtype, activation=config.activation,
        amax=config.amax, d_scale=config.d_scale,
    )  # fmt: skip
    problem = Gemm(
        512, 512, 512, config.a, config.b, config.d, config.layout, config.scale,
        config.accumulate, scale_format=config.scale_format, epilogue=epilogue,
    )  # fmt: skip
    return gemm_sm90.plan(problem, config)


def test_sample_of_corner_configs_assembles_without_spill_or_message() -> None:
    for config in covering_sample(corner_configs(1000), CI_SAMPLE):
        assemble_cleanly(plan_of(config))


ROWS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({}, {}, {"tile_m": 256, "tile_n": 136, "warpgroups": 2}),
    ({"scale": "rowcol"}, {"bias": "column"}, {"tile_m": 64, "tile_n": 256, "warpgroups": 1}),
    ({}, {"c": "f32", "bias": "column", "activation": "silu"},
     {"tile_m": 128, "tile_n": 96, "warpgroups": 1}),
    ({"scale": "block", "accumulate": "promoted"},
     {"c": "f32", "bias": "column", "activation": "gelu"},
     {"tile_m": 192, "tile_n": 72, "warpgroups": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "epilogue", "tile"), ROWS, ids=str)
def test_large_tiles_stored_in_rows_assemble_without_spill_or_message(
    fields: dict[str, Any], epilogue: dict[str, Any], tile: dict[str, int]
) -> None:
    problem = Gemm(512, 512, 512, "e4m3", "e4m3", **fields, epilogue=Epilogue(**epilogue))
    config = gemm_sm90.default_config(problem, store="global", **tile)
    assert config.stores_rows
    assemble_cleanly(gemm_sm90.plan(problem, config))


@pytest.mark.parametrize("cluster_m", [1, 2])
def test_deferred_rows_leave_matrix_descriptors_in_uniform_registers(cluster_m: int) -> None:
    problem = Gemm(512, 511, 512, "e4m3", "e4m3", scale="tensor")
    config = gemm_sm90.default_config(
        problem, tile_m=128, tile_n=256, warpgroups=2, cluster_m=cluster_m
    )
    assert config.defers
    plan = gemm_sm90.plan(problem, config)
    assemble_cleanly(plan)
    sass = disassemble(assemble(render(plan).text, plan.target).code)
    loops = sass[sass.index("QGMMA") : sass.rindex("QGMMA")]
    assert "R2UR" not in loops  # each such move makes a wgmma wait


@pytest.mark.parametrize("scale", ["rowcol", "block", "group"])
def test_widest_tiles_of_two_ctas_on_an_sm_assemble_without_spill_or_message(scale: str) -> None:
    problem = Gemm(512, 512, 512, "e4m3", "e4m3", scale=scale, accumulate="promoted")
    config = gemm_sm90.default_config(problem, tile_m=64, tile_n=64, ctas_per_sm=2)
    assert assemble_cleanly(gemm_sm90.plan(problem, config)).registers <= 128


@pytest.mark.parametrize("cluster", [{"cluster_m": 2}, {"cluster_n": 2}], ids=str)
def test_scales_of_columns_that_spill_in_a_cluster_are_refused(cluster: dict[str, int]) -> None:
    problem = Gemm(512, 512, 512, "e4m3", "e4m3", scale="group", accumulate="promoted")
    tile: dict[str, Any] = {"tile_m": 128, "warpgroups": 2, "store": "tma", **cluster}
    for tile_n in (96, 128):
        config = gemm_sm90.default_config(problem, tile_n=tile_n, **tile)
        assemble_cleanly(gemm_sm90.plan(problem, config))
    with pytest.raises(ConfigError, match="try tile_n=128"):
        gemm_sm90.default_config(problem, tile_n=112, **tile)


def test_two_ctas_to_an_sm_fit_it_and_are_launched() -> None:
    problem = Gemm(64, 4096, 512, "e4m3", "e4m3")
    config = gemm_sm90.default_config(problem, tile_n=64, ctas_per_sm=2)
    launch = gemm_sm90.plan(problem, config, num_sms=20).launch
    assert launch.grid_ctas == (40, 1, 1)
    assert 2 * (launch.dynamic_smem_bytes + 1024) <= arch("sm_90a").smem_bytes + 1024


def test_two_ctas_to_an_sm_are_refused_where_they_cannot_share_it() -> None:
    problem = Gemm(64, 4096, 512, "e4m3", "e4m3")
    for chosen in ({"tile_n": 72}, {"tile_m": 128}, {"cluster_n": 2}, {"dependent_launch": True}):
        with pytest.raises(ConfigError, match="ctas_per_sm=2 needs"):
            gemm_sm90.default_config(problem, **{"tile_n": 64, "ctas_per_sm": 2, **chosen})


@pytest.mark.parametrize("scale", ["rowcol", "block", "group"])
@pytest.mark.parametrize("m", [5, 512])
def test_scaled_d_of_promoted_sums_has_a_tile_that_assembles_cleanly(scale: str, m: int) -> None:
    problem = Gemm(m, 512, 512, "e4m3", "e4m3", "e4m3", scale=scale, accumulate="promoted",
                   epilogue=Epilogue(d_scale="group", amax=True))  # fmt: skip
    assemble_cleanly(gemm_sm90.plan(problem, gemm_sm90.default_config(problem)))
    assert any(reason is None for _, reason in gemm_sm90.configs(problem))


@pytest.mark.parametrize("activation", ["none", "swiglu"])
@pytest.mark.parametrize("d_scale", ["none", "group"])
def test_no_epilogue_refuses_an_empty_d(activation: str, d_scale: str) -> None:
    epilogue = Epilogue(activation=activation, d_scale=d_scale)
    gemm_sm90.plan(Gemm(5, 0, 64, "e4m3", "e4m3", "e4m3", epilogue=epilogue))


@pytest.mark.slow
def test_many_corner_configs_assemble_without_spill_or_message() -> None:
    for config in corner_configs(600):
        assemble_cleanly(plan_of(config))


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
    for config in covering_sample(corner_configs(200), 8):
        assert has_lowest_version(plan_of(config))


def test_stage_hint_is_itself_legal() -> None:
    problem = Gemm(512, 512, 512, "e4m3", "e4m3")
    with pytest.raises(ConfigError, match=r"try stages<=4") as caught:
        gemm_sm90.plan(problem, gemm_sm90.default_config(problem, stages=9, tile_m=128, tile_n=256))
    assert "232448" in str(caught.value)
    gemm_sm90.plan(problem, gemm_sm90.default_config(problem, stages=4, tile_m=128, tile_n=256))

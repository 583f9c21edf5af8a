"""Configurations of grouped_sm90: legal ones assemble cleanly, illegal ones are refused by name."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxgen.assembler import assemble
from ptxgen.errors import ConfigError, ProblemError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.inspection.sass import disassemble
from ptxgen.kernels import grouped_sm90
from ptxgen.kernels.grouped_sm90 import Config
from ptxgen.ptx.forms import min_version
from ptxgen.ptx.parser import parse
from ptxgen.renderer import render

CI_SAMPLE = 12
"""Configurations that CI assembles; `--all` assembles many more."""


def problem_of(config: Config) -> GroupedGemm:
    """A problem that the config serves."""
    return GroupedGemm(
        config.mode, 16, 4096, 4096, 7168, config.a, config.b, config.d, config.scale,
        config.accumulate, config.index, alignment=128 if config.mode == "kgrouped" else 1,
    )  # fmt: skip


def widest(problem: GroupedGemm, swap_ab: bool, **chosen: Any) -> Config | None:
    """The legal config with the most columns of wgmma, which needs the most registers."""
    name = "tile_m" if swap_ab else "tile_n"
    for columns in range(256, 0, -8):
        try:
            return grouped_sm90.default_config(
                problem, swap_ab=swap_ab, **{name: columns}, **chosen
            )
        except ConfigError:
            continue
    return None


def corner_configs() -> list[Config]:
    """The widest tile of every combination of the other choices."""
    found = []
    scales = [("none", "fast"), ("none", "promoted"), ("tensor", "fast"), ("rowcol", "fast"),
              ("rowcol", "promoted"), ("block", "promoted"), ("group", "promoted")]  # fmt: skip
    for mode, a, (scale, accumulate), d, swap_ab in itertools.product(
        ("masked", "contiguous", "batched"), ("e4m3", "bf16"), scales, ("bf16", "f32"),
        (False, True),
    ):  # fmt: skip
        if a == "bf16" and scale in ("block", "group"):
            continue
        problem = GroupedGemm(mode, 16, 4096, 4096, 7168, a, a, d, scale, accumulate)
        for warpgroups, rows, cluster, store in itertools.product(
            (1, 2, 3), (64, 128, 192, 256), ((1, 1), (2, 1), (1, 2)), ("tma", "global")
        ):
            side = {"tile_n": rows, "token_step": 32} if swap_ab else {"tile_m": rows}
            config = widest(
                problem, swap_ab, warpgroups=warpgroups, cluster_m=cluster[0],
                cluster_n=cluster[1], store=store, **side,
            )  # fmt: skip
            if config is not None:
                found.append(config)
    return found


def assembles_cleanly(config: Config) -> None:
    plan = grouped_sm90.plan(problem_of(config), config)
    cubin = assemble(render(plan).text, plan.target)
    assert cubin.spill_bytes == 0, str(config)
    assert cubin.messages == (), str(config)


def test_sample_of_corner_configs_assembles_without_spill_or_message() -> None:
    for config in random.Random(0).sample(corner_configs(), CI_SAMPLE):
        assembles_cleanly(config)


@pytest.mark.slow
def test_many_corner_configs_assemble_without_spill_or_message() -> None:
    for config in random.Random(1).sample(corner_configs(), 150):
        assembles_cleanly(config)


@pytest.mark.parametrize("tile_m", [32, 96, 160])
def test_a_main_loop_for_every_eight_rows_assembles_cleanly(tile_m: int) -> None:
    problem = GroupedGemm("masked", 16, 4096, 4096, 7168, scale="block", accumulate="promoted")
    assembles_cleanly(grouped_sm90.default_config(problem, swap_ab=True, tile_m=tile_m))


MASKED = GroupedGemm("masked", 16, 4096, 4096, 7168, scale="block", accumulate="promoted")
SUMS = GroupedGemm(
    "kgrouped", 16, 4096, 7168, 32384, d="f32", scale="group", accumulate="promoted", alignment=128
)


@pytest.mark.parametrize("tile_n", [32, 64, 96, 128])
@pytest.mark.parametrize("cluster", [{}, {"cluster_m": 2}, {"cluster_n": 2}], ids=str)
def test_sums_of_three_warpgroups_assemble_cleanly(tile_n: int, cluster: dict[str, int]) -> None:
    assembles_cleanly(
        grouped_sm90.default_config(SUMS, tile_m=192, tile_n=tile_n, warpgroups=3, **cluster)
    )


@pytest.mark.parametrize("problem", [MASKED, SUMS], ids=lambda problem: problem.mode)
@pytest.mark.parametrize(("tile_m", "warpgroups"), [(64, 1), (128, 2), (192, 3)])
def test_matrix_descriptors_stay_in_uniform_registers(
    problem: GroupedGemm, tile_m: int, warpgroups: int
) -> None:
    config = grouped_sm90.default_config(problem, tile_m=tile_m, tile_n=128, warpgroups=warpgroups)
    plan = grouped_sm90.plan(problem, config)
    sass = disassemble(assemble(render(plan).text, plan.target).code)
    loops = sass[sass.index("QGMMA") : sass.rindex("QGMMA")]
    assert "R2UR" not in loops  # each such move makes a wgmma wait: 19 % of 192 x 128 on an H200


FIELDS = {
    "mode": st.sampled_from(["masked", "contiguous", "batched", "kgrouped", "other"]),
    "a": st.sampled_from(["e4m3", "bf16", "f32", "s8"]),
    "d": st.sampled_from(["bf16", "f32", "e4m3"]),
    "scale": st.sampled_from(["none", "tensor", "rowcol", "block", "group", "mx32", "other"]),
    "accumulate": st.sampled_from(["fast", "promoted"]),
}
TUNED = {
    "swap_ab": st.booleans(),
    "tile_m": st.integers(-8, 40).map(lambda i: 8 * i),
    "tile_n": st.integers(-1, 5).map(lambda i: 64 * i),
    "stages": st.integers(-1, 40),
    "cluster_m": st.integers(0, 4),
    "cluster_n": st.integers(0, 4),
    "warpgroups": st.integers(0, 4),
    "token_step": st.sampled_from([0, 8, 16, 24, 32, 64]),
    "store": st.sampled_from(["tma", "global", "other"]),
    "hint": st.sampled_from(["none", "evict_first", "other"]),
}


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries(FIELDS), st.fixed_dictionaries({}, optional=TUNED))
def test_any_config_renders_or_is_refused_by_our_own_error(
    fields: dict[str, str], tuned: dict[str, Any]
) -> None:
    try:
        problem = GroupedGemm(groups=3, m=100, n=120, k=144, b=fields["a"], **fields)  # type: ignore[arg-type]
        config = grouped_sm90.default_config(problem, **tuned)
        text = render(grouped_sm90.plan(problem, config)).text
    except (ConfigError, ProblemError) as error:
        text = str(error)
    assert text


@pytest.mark.parametrize("swap_ab", [False, True])
def test_text_depends_on_the_config_alone(swap_ab: bool) -> None:
    chosen: dict[str, Any] = {"scale": "block", "accumulate": "promoted"}
    small = GroupedGemm("masked", 3, 64, 128, 256, **chosen)
    large = GroupedGemm("masked", 200, 4096, 7168, 2048, **chosen)
    config = grouped_sm90.default_config(small, swap_ab=swap_ab)
    texts = {render(grouped_sm90.plan(p, config)).text for p in (small, large)}
    assert len(texts) == 1


def test_ptx_version_is_the_lowest_that_serves() -> None:
    problem = GroupedGemm("masked", 3, 64, 128, 256, scale="block", accumulate="promoted")
    swapped: dict[str, Any] = {"swap_ab": True, "hint": "evict_first", "tile_m": 16}
    for chosen in ({}, swapped):
        plan = grouped_sm90.plan(problem, grouped_sm90.default_config(problem, **chosen))
        version, _ = min_version(parse(render(plan).text), plan.target)
        assert version == plan.version

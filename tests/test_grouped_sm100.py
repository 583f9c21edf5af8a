"""grouped_sm100 computes every group's D on the emulator, touches nothing else, and is clean."""

from typing import Any

import numpy as np
import pytest
from grouped_runs import is_exact

from ptxgen.assembler import assemble
from ptxgen.emulator import SCHEDULES, EmulatorDevice, Options
from ptxgen.emulator.checking import check
from ptxgen.errors import ConfigError
from ptxgen.grouped_operands import device_sizes, make_grouped_operands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.grouped_trial import run_grouped, run_operands
from ptxgen.kernels import grouped_sm100
from ptxgen.ptx.forms import min_version
from ptxgen.ptx.parser import parse
from ptxgen.renderer import render

ROWS = [70, 0, 17, 64, 3]
"""A tile and a tail, an empty group, tails of less and of more than 16 rows, a whole tile."""
CTAS: list[dict[str, Any]] = [
    {"cta_group": 1, "tile_n": 64},
    {"cta_group": 1, "tile_n": 128},
    {"cta_group": 2, "tile_n": 128},
]


def computes(
    problem: GroupedGemm, rows: list[int], chosen: dict[str, Any], options: Options | None = None
) -> bool:
    operands = make_grouped_operands(problem, device_sizes(problem, rows), "integers")
    config = grouped_sm100.default_config(problem, **chosen)
    return is_exact(EmulatorDevice(options), problem, config, operands)


def small(mode: str, a: str = "bf16", **chosen: Any) -> GroupedGemm:
    """Five groups of up to 72 rows, n = 136 and k = 400: no multiples of tiles."""
    m = {"masked": 72, "batched": 72, "contiguous": 200}[mode]
    return GroupedGemm(mode, 5, m, 136, 400, a, a, **chosen)


@pytest.mark.parametrize("ctas", CTAS, ids=str)
@pytest.mark.parametrize("mode", ["masked", "contiguous"])
@pytest.mark.parametrize("scale", ["none", "tensor", "rowcol"])
@pytest.mark.parametrize("a", ["bf16", "e4m3"])
def test_groups_of_any_size_are_exact(a: str, scale: str, mode: str, ctas: dict[str, Any]) -> None:
    assert computes(small(mode, a, scale=scale), ROWS, ctas)


STRAIGHT: list[dict[str, Any]] = [
    {"swap_ab": False, "cta_group": 1, "tile_m": 64},
    {"swap_ab": False, "cta_group": 1, "tile_m": 128},
    {"swap_ab": False, "cta_group": 2, "tile_m": 64},
    {"swap_ab": False, "cta_group": 2, "tile_m": 128},
]
"""Operands not swapped, in every accumulator layout."""


@pytest.mark.parametrize("ctas", STRAIGHT, ids=str)
@pytest.mark.parametrize("mode", ["masked", "contiguous", "batched"])
@pytest.mark.parametrize(("a", "scale"), [("bf16", "none"), ("e4m3", "rowcol"), ("s8", "tensor")])
def test_groups_without_swapped_operands_are_exact(
    a: str, scale: str, mode: str, ctas: dict[str, Any]
) -> None:
    m = {"masked": 300, "batched": 300, "contiguous": 500}[mode]
    problem = GroupedGemm(mode, 5, m, 136, 400, a, a, scale=scale, alpha=0.5)
    rows = [300] * 5 if mode == "batched" else [129, 0, 17, 300, 3]
    assert computes(problem, rows, {**ctas, "tile_n": 64, "stages": 2})


@pytest.mark.parametrize("ctas", STRAIGHT[1::2], ids=str)
@pytest.mark.parametrize("mode", ["masked", "contiguous"])
def test_strict_checks_find_nothing_without_swapped_operands(
    mode: str, ctas: dict[str, Any]
) -> None:
    problem = GroupedGemm(mode, 4, 300, 136, 208, scale="rowcol")
    config = grouped_sm100.default_config(problem, **ctas, tile_n=64, stages=2)
    plan = grouped_sm100.plan(problem, config, num_sms=4)
    operands = make_grouped_operands(problem, device_sizes(problem, [129, 0, 17, 150]), "integers")
    data = {name: x.tobytes() for name, x in operands.contents().items()}
    report = check(render(plan).text, plan.launch, data, strict=True)
    assert report.findings == ()
    assert report.identical


def test_swapping_changes_no_bit() -> None:
    problem = GroupedGemm("masked", 3, 150, 136, 400, "e4m3", "e4m3", scale="rowcol", alpha=0.3)
    sizes, found = device_sizes(problem, [150, 0, 17]), []
    operands = make_grouped_operands(problem, sizes, "random")
    for swapped in (False, True):
        config = grouped_sm100.default_config(problem, swap_ab=swapped)
        plan = grouped_sm100.plan(problem, config, num_sms=4)
        device = EmulatorDevice(Options(exact=True))
        run = run_operands(problem, operands, plan.launch, render(plan).text, device)
        found.append(run.d.view(np.uint16))
    assert np.array_equal(*found)


@pytest.mark.parametrize("ctas", CTAS, ids=str)
@pytest.mark.parametrize(
    ("a", "d"), [("f16", "f32"), ("tf32", "bf16"), ("e5m2", "f16"), ("s8", "bf16")]
)
def test_formats_are_exact(a: str, d: str, ctas: dict[str, Any]) -> None:
    assert computes(small("masked", a, d=d), ROWS, ctas)


@pytest.mark.parametrize("ctas", CTAS, ids=str)
def test_integer_sums_can_be_stored_as_they_are(ctas: dict[str, Any]) -> None:
    problem, sizes = small("masked", "s8", d="s32"), np.asarray(ROWS, np.int32)
    config = grouped_sm100.default_config(problem, **ctas)
    plan = grouped_sm100.plan(problem, config, num_sms=4)
    trial = run_grouped(
        problem, sizes, config, plan.launch, render(plan).text, EmulatorDevice(), data="integers"
    )
    assert trial.ok, trial.verdict


@pytest.mark.parametrize("ctas", CTAS, ids=str)
def test_batches_are_exact(ctas: dict[str, Any]) -> None:
    assert computes(small("batched"), [72] * 5, ctas)


@pytest.mark.parametrize(
    "chosen",
    [
        {"tile_m": 16, "stages": 1, "cta_group": 1},
        {"tile_m": 24, "tile_n": 64, "cta_group": 1, "accumulators": 1},
        {"tile_m": 32, "cluster_m": 2, "cta_group": 1},
        {"tile_m": 32, "cluster_m": 2, "cta_group": 2},
        {"tile_m": 256, "cta_group": 2},
        {"tile_m": 48, "store": "global"},
    ],
    ids=str,
)
def test_tiles_and_clusters_are_exact(chosen: dict[str, Any]) -> None:
    problem = GroupedGemm("masked", 4, 200, 264, 400, "e4m3", "e5m2")
    assert computes(problem, [150, 0, 3, 200], chosen)


@pytest.mark.parametrize(
    "rows", [[0, 0, 0, 0, 0], [0, 72, 0, 0, 0], [72] * 5, [1] * 5, [16] * 5, [15, 16, 17, 0, 1]],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("ctas", CTAS, ids=str)
def test_empty_full_and_single_groups_are_exact(rows: list[int], ctas: dict[str, Any]) -> None:
    assert computes(small("masked"), rows, ctas)


def test_sizes_outside_the_matrix_are_clamped() -> None:
    problem = small("masked")
    sizes = np.asarray([100, -5, 2**31 - 1, -(2**31), 7], np.int32)
    operands = make_grouped_operands(problem, sizes, "integers")
    config = grouped_sm100.default_config(problem)
    assert is_exact(EmulatorDevice(), problem, config, operands)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("index", "alignment"), [("offsets", 1), ("ends", 1), ("ends", 40)])
def test_every_description_of_segments_is_read(index: str, alignment: int, bits: int) -> None:
    problem = GroupedGemm(
        "contiguous", 5, 260, 136, 256, index=index, alignment=alignment, index_bits=bits
    )
    assert computes(problem, ROWS, {})


@pytest.mark.parametrize("groups", [1, 32, 33, 100])
def test_any_number_of_groups_is_exact(groups: int) -> None:
    problem = GroupedGemm("masked", groups, 8, 16, 128)
    rows = np.random.default_rng(groups).integers(0, 9, groups).tolist()
    assert computes(problem, rows, {"tile_n": 64, "cta_group": 1})


@pytest.mark.parametrize("ctas", CTAS, ids=str)
def test_k_of_zero_gives_zeros(ctas: dict[str, Any]) -> None:
    assert computes(GroupedGemm("masked", 3, 40, 136, 0), [40, 0, 3], ctas)


def test_strides_are_read_in_place() -> None:
    m, n, k = 72, 136, 256
    problem = GroupedGemm(
        "masked", 3, m, n, k, scale="rowcol", a_stride=k + 16, b_stride=k + 32, d_stride=n + 8,
        a_group_stride=100 * (k + 16), b_group_stride=(n + 3) * (k + 32),
        d_group_stride=(m + 5) * (n + 8),
    )  # fmt: skip
    assert computes(problem, [72, 0, 19], {})


def test_d_that_tma_cannot_address_is_exact() -> None:
    assert computes(GroupedGemm("masked", 3, 40, 45, 256, d_stride=47), [40, 0, 19], {})


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ctas", CTAS, ids=str)
@pytest.mark.parametrize("mode", ["masked", "contiguous"])
def test_no_schedule_changes_the_result(mode: str, ctas: dict[str, Any], schedule: str) -> None:
    options = Options(schedule=schedule, seed=1, resident_clusters=2)
    assert computes(small(mode), ROWS, ctas, options)


@pytest.mark.parametrize("mode", ["masked", "contiguous"])
@pytest.mark.parametrize(
    "chosen",
    [*CTAS, {"tile_m": 32, "cluster_m": 2, "cta_group": 2}, {"store": "global", "stages": 1}],
    ids=str,
)
def test_strict_checks_find_nothing(mode: str, chosen: dict[str, Any]) -> None:
    problem = small(mode, scale="rowcol")
    config = grouped_sm100.default_config(problem, **chosen)
    plan = grouped_sm100.plan(problem, config, num_sms=4)
    operands = make_grouped_operands(problem, device_sizes(problem, ROWS), "integers")
    data = {name: x.tobytes() for name, x in operands.contents().items()}
    report = check(render(plan).text, plan.launch, data, strict=True)
    assert report.findings == ()
    assert report.identical


@pytest.mark.parametrize("target", grouped_sm100.TARGETS)
@pytest.mark.parametrize("chosen", [{}, {"cta_group": 1}, {"store": "global"}], ids=str)
@pytest.mark.parametrize("scale", ["none", "rowcol"])
def test_configs_assemble_with_the_lowest_version_and_no_spill(
    scale: str, chosen: dict[str, Any], target: str
) -> None:
    problem = small("contiguous", scale=scale)
    plan = grouped_sm100.plan(
        problem, grouped_sm100.default_config(problem, target=target, **chosen)
    )
    text = render(plan).text
    assert min_version(parse(text), target)[0] == plan.version
    cubin = assemble(text, target)
    assert (cubin.spill_bytes, cubin.messages) == (0, ())


@pytest.mark.parametrize(
    ("problem", "chosen", "message"),
    [
        (small("masked"), {"swap_ab": False, "store": "tma"}, "try store=global"),
        (small("masked"), {"swap_ab": False, "cta_group": 1, "cluster_n": 2}, "try 1x1"),
        (small("masked"), {"scheduler": "clc"}, "must be static"),
        (small("masked", scale="block", a="e4m3"), {}, "has no scale=block"),
        (small("masked", "e2m1"), {}, "does not multiply e2m1"),
        (small("masked"), {"cta_group": 1, "cluster_n": 2}, "rows of A are not shared"),
    ],
)
def test_what_cannot_work_is_refused_by_name(
    problem: GroupedGemm, chosen: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        grouped_sm100.default_config(problem, **chosen)

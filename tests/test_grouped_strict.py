"""grouped_sm90 passes the strict checker: no race, no undefined byte, the same bits always."""

from typing import Any

import pytest
from grouped_runs import assert_shares_a_tile

from ptxgen.emulator.checking import check
from ptxgen.grouped_operands import device_sizes
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm90
from ptxgen.subjects import exercising_grouped_subjects, grouped_subject

BLOCK: dict[str, Any] = {"scale": "block", "accumulate": "promoted"}
GROUP: dict[str, Any] = {"scale": "group", "accumulate": "promoted"}
MASKED = ("masked", 72, 384)
CONTIGUOUS = ("contiguous", 90, 384)
KGROUPED = ("kgrouped", 72, 400)
ROWS = [70, 0, 17, 3]
"""More than a tile, an empty group, two tails. The rings are short, so that they wrap."""
CASES: dict[str, tuple[tuple[str, int, int], dict[str, Any], dict[str, Any], list[int]]] = {
    "straight": (MASKED, BLOCK, {"tile_m": 64, "tile_n": 64, "stages": 2}, ROWS),
    "straight, three warpgroups": (
        MASKED, BLOCK, {"tile_m": 192, "tile_n": 128, "warpgroups": 3, "stages": 2}, ROWS,
    ),
    "straight, a tile in one buffer": (
        ("masked", 192, 128), {}, {"tile_m": 64, "tile_n": 64, "warpgroups": 1, "stages": 2},
        [192, 128, 70, 0],
    ),
    "straight, a block in each buffer": (
        ("masked", 192, 128), {}, {"tile_m": 128, "tile_n": 64, "warpgroups": 1, "stages": 2},
        [192, 128, 70, 0],
    ),
    "straight, multicast": (
        MASKED, {"a": "bf16", "b": "bf16"},
        {"tile_m": 64, "tile_n": 64, "cluster_m": 2, "stages": 3}, ROWS,
    ),
    "swapped": (MASKED, BLOCK, {"swap_ab": True, "tile_m": 40, "stages": 2}, ROWS),
    "swapped, wide steps": (MASKED, BLOCK, {"swap_ab": True, "tile_m": 72, "token_step": 32}, ROWS),
    "swapped, weights multicast": (
        CONTIGUOUS, BLOCK, {"swap_ab": True, "tile_m": 24, "cluster_m": 2, "stages": 3}, ROWS,
    ),
    "swapped, tokens multicast": (
        MASKED, BLOCK, {"swap_ab": True, "tile_m": 24, "cluster_n": 2, "stages": 2}, ROWS,
    ),
    "a last wave that CTAs share": (
        ("masked", 72, 2048), BLOCK, {"swap_ab": True, "tile_m": 72, "stages": 2, "stream_k": True},
        [70, 3, 17, 0],
    ),
    "a last wave that CTAs share, three warpgroups": (
        ("contiguous", 250, 2048), BLOCK,
        {"tile_m": 192, "warpgroups": 3, "stages": 2, "stream_k": True}, [150, 0, 70, 30],
    ),
    "swapped, rows that name groups": (
        CONTIGUOUS, {**BLOCK, "index": "rows"}, {"swap_ab": True, "tile_m": 24}, ROWS,
    ),
    "swapped, vectors of scales": (
        MASKED, {"scale": "rowcol"}, {"swap_ab": True, "tile_m": 40}, ROWS,
    ),
    "parts of k": (
        KGROUPED, {**GROUP, "d": "f32", "alignment": 16}, {"tile_n": 64}, [144, 0, 240, 16],
    ),
    "parts of k, a warpgroup without rows": (
        KGROUPED, {**GROUP, "d": "f32", "alignment": 16},
        {"tile_m": 128, "tile_n": 96, "cluster_n": 2, "stages": 2}, [144, 0, 240, 16],
    ),
    "parts of k, three warpgroups": (
        KGROUPED, {**GROUP, "d": "f32", "alignment": 16},
        {"tile_m": 192, "tile_n": 128, "warpgroups": 3, "stages": 2}, [144, 0, 240, 16],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_strict_checker_finds_nothing(name: str) -> None:
    (mode, m, k), chosen, tuned, rows = CASES[name]
    problem = GroupedGemm(mode, 4, m, 136, k, **chosen)
    config = grouped_sm90.default_config(problem, **tuned)
    sizes = device_sizes(problem, rows)
    if config.stream_k:
        assert_shares_a_tile(problem, config, sizes, num_sms=4)
    subject = grouped_subject(problem, sizes, config, grouped_sm90, num_sms=4)
    report = check(
        subject.ptx, subject.launch, subject.data, strict=True,
        schedules=("lazy", "eager", "random"),
    )  # fmt: skip
    assert not report.findings, report.findings[:3]


@pytest.mark.parametrize("n", [8, 24, 32, 80])
@pytest.mark.parametrize("mode", ["masked", "contiguous"])
def test_groups_that_end_inside_a_narrow_chunk_read_only_what_was_staged(mode: str, n: int) -> None:
    problem = GroupedGemm(mode, 2, 90, n, 64)
    config = grouped_sm90.default_config(problem, swap_ab=False)
    sizes = device_sizes(problem, [17, 3])
    subject = grouped_subject(problem, sizes, config, grouped_sm90, num_sms=4)
    report = check(subject.ptx, subject.launch, subject.data, strict=True, schedules=("lazy",))
    assert not report.findings, report.findings[:3]


def test_parts_of_k_with_no_one_an_even_and_an_odd_number_of_k_tiles_are_clean() -> None:
    problem = GroupedGemm("kgrouped", 4, 72, 136, 400, d="f32", alignment=16, **GROUP)
    config = grouped_sm90.default_config(problem, tile_m=128, tile_n=32, stages=2)
    for subject in exercising_grouped_subjects(problem, config, grouped_sm90):
        report = check(subject.ptx, subject.launch, subject.data, strict=True, schedules=("lazy",))
        assert not report.findings, report.findings[:3]

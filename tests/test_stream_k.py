"""stream_k: CTAs share the last wave's tiles along K, and sums are those of the parts in order."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from grouped_runs import assert_shares_a_tile, is_exact, run_grouped

from ptxgen.emulator import EmulatorDevice, Options
from ptxgen.errors import ConfigError
from ptxgen.grouped_exact import exact_crossings, shared_by_segment
from ptxgen.grouped_operands import device_sizes, make_grouped_operands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.grouped_reference import group_operands
from ptxgen.kernels import grouped_sm90
from ptxgen.operands import POISON, Operands
from ptxgen.quantize import numpy_dtype
from ptxgen.renderer import render
from ptxgen.swap_selection import choose_swap

BLOCK: dict[str, Any] = {"scale": "block", "accumulate": "promoted"}
CASES: dict[str, tuple[str, int, int, int, dict[str, Any], dict[str, Any], list[int], int]] = {
    "swapped": ("masked", 72, 384, 2048, BLOCK, {"swap_ab": True, "tile_m": 24}, [70, 0, 17, 3], 7),
    "one warpgroup": (
        "masked", 192, 256, 2048, BLOCK, {"tile_m": 64, "warpgroups": 1}, [192, 70, 3, 0], 5,
    ),
    "two sets of sums": ("batched", 128, 256, 2048, BLOCK, {"tile_m": 128}, [128] * 3, 5),
    "three warpgroups": (
        "masked", 192, 256, 2048, BLOCK, {"tile_m": 192, "warpgroups": 3}, [192, 70, 3, 0], 5,
    ),
    "fast sums": (
        "contiguous", 200, 256, 2048, {"d": "f32"}, {"tile_m": 64, "store": "global"},
        [100, 0, 30, 50], 13,
    ),
    "fewer tiles than CTAs": (
        "masked", 64, 128, 4096, {"scale": "rowcol"}, {"swap_ab": True, "tile_m": 64}, [64, 10], 8,
    ),
    "rasters of tiles": (
        "masked", 600, 128, 2048, BLOCK, {"tile_m": 64, "tile_n": 64}, [600, 500], 7,
    ),
}  # fmt: skip
"""Mode, M, N, K, what else the problem and the config say, rows, CTAs."""


def made(name: str) -> tuple[GroupedGemm, Any, list[int], int]:
    mode, m, n, k, kind, chosen, rows, ctas = CASES[name]
    problem = GroupedGemm(mode, len(rows), m, n, k, **kind)
    config = grouped_sm90.default_config(problem, stream_k=True, **chosen)
    return problem, config, rows, ctas


@pytest.mark.parametrize("name", CASES)
def test_integers_are_exact(name: str) -> None:
    problem, config, rows, ctas = made(name)
    operands = make_grouped_operands(problem, device_sizes(problem, rows), "integers")
    assert_shares_a_tile(problem, config, operands.sizes, ctas)
    assert is_exact(EmulatorDevice(), problem, config, operands, ctas)


@pytest.mark.parametrize("name", ["fast sums", "rasters of tiles", "fewer tiles than CTAs"])
def test_bits_are_those_of_the_parts_that_the_schedule_names(name: str) -> None:
    problem, config, rows, ctas = made(name)
    operands = make_grouped_operands(problem, device_sizes(problem, rows))
    device = EmulatorDevice(Options(exact=True))
    found = run_grouped(device, problem, config, operands, ctas).d
    segments = problem.segments(operands.sizes)
    shared = shared_by_segment(problem, config, segments, ctas)
    as_one = 0  # elements that sums in one go would give other bits
    for segment in segments:
        inputs = Operands(
            *group_operands(
                problem, segment, operands.a, operands.b, operands.scale_a, operands.scale_b
            )
        )
        places = np.arange(segment.length), np.arange(0, problem.n, 3)
        d = found[segment.group if problem.d_shape[0] > 1 else 0]
        d = d[segment.start : segment.start + segment.length][:, places[1]]
        want = exact_crossings(problem, segment, inputs, shared[segment], *places)
        np.testing.assert_array_equal(d.astype(np.float32), want.astype(np.float32))
        as_one += int(np.sum(d != exact_crossings(problem, segment, inputs, [], *places)))
    assert as_one > 0 or problem.d != "f32", "sums in one go have other bits"


def test_the_workspace_is_ready_for_the_next_launch() -> None:
    problem, config, rows, ctas = made("swapped")
    plan = grouped_sm90.plan(problem, config, ctas)
    text = render(plan).text
    # CTAs side by side, in an order in which some read a slot before it is filled
    device = EmulatorDevice(Options("random", resident_clusters=0))
    at = {buffer.name: device.alloc(buffer.nbytes) for buffer in plan.launch.buffers}
    (workspace,) = plan.launch.workspaces
    device.write(at["workspace"], bytes(workspace.nbytes))
    poison = bytes([POISON]) * problem.extent_bytes("d")
    for seed, some in enumerate((rows, rows[::-1])):
        x = make_grouped_operands(problem, device_sizes(problem, some), "integers", seed)
        assert_shares_a_tile(problem, config, x.sizes, ctas)
        for name, value in x.contents().items():
            device.write(at[name], value.tobytes())
        device.write(at["d"], poison)
        device.launch(plan.launch, text, at)
        found = np.frombuffer(device.read(at["d"], len(poison)), numpy_dtype(problem.d))
        want = problem.reference(x.sizes, x.a, x.b, x.scale_a, x.scale_b).astype(np.float32)
        np.testing.assert_array_equal(
            found.reshape(problem.d_shape).astype(np.float32),
            want.astype(found.dtype).astype(np.float32),
        )
    words = np.frombuffer(device.read(at["workspace"], workspace.nbytes), np.uint32)
    assert not words[:: config.slot_bytes // 4].any(), "all slots must be empty again"


@pytest.mark.parametrize(
    ("mode", "groups", "k", "kind", "chosen"),
    [
        ("masked", 33, 2048, {}, {}),
        ("masked", 2, 0, {}, {}),
        ("masked", 2, 2048, {}, {"cluster_m": 2}),
        ("masked", 2, 2048, {}, {"cluster_n": 2}),
        ("contiguous", 2, 2048, {"index": "rows"}, {}),
        ("kgrouped", 2, 2048, {"d": "f32", "alignment": 16}, {"store": "tma"}),
    ],
)
def test_what_cannot_be_shared_is_refused(
    mode: str, groups: int, k: int, kind: dict[str, Any], chosen: dict[str, Any]
) -> None:
    problem = GroupedGemm(mode, groups, 128, 128, k, **kind)
    config = replace(grouped_sm90.default_config(problem, **chosen), stream_k=True)
    with pytest.raises(ConfigError, match="stream_k"):
        grouped_sm90.plan(problem, config)


def test_it_is_taken_only_if_it_is_chosen() -> None:
    problem = GroupedGemm("masked", 8, 64, 64, 4096, **BLOCK)
    assert not choose_swap(problem, 16).config.stream_k
    shared = choose_swap(problem, 16, chosen={"stream_k": True})
    assert shared.config.stream_k
    assert "shared along K" in shared.why

"""grouped_sm90 computes every group's D and touches nothing else, on emulator and GPU."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gemm_runs import run_gemm
from grouped_runs import is_exact, run_grouped

from ptxgen.emulator import EmulatorDevice, Options
from ptxgen.epilogue import Epilogue
from ptxgen.errors import ConfigError, ProblemError
from ptxgen.grouped_operands import device_sizes, make_grouped_operands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import gemm_sm90, grouped_sm90
from ptxgen.launch import Device
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.quantize import numpy_dtype
from ptxgen.renderer import render

BLOCK: dict[str, Any] = {"scale": "block", "accumulate": "promoted"}
GROUP: dict[str, Any] = {"scale": "group", "accumulate": "promoted"}
ROWS = [70, 0, 17, 64, 3]
"""A tile and a tail, an empty group, tails of less and of more than 8 rows, a whole tile."""
STRAIGHT: dict[str, Any] = {"tile_m": 64, "tile_n": 64}
SWAPPED: dict[str, Any] = {"swap_ab": True, "tile_m": 40}


def computes(device: Device, problem: GroupedGemm, rows: list[int], config: dict[str, Any]) -> bool:
    """Whether D is exact for groups of `rows` rows and nothing else was written."""
    operands = make_grouped_operands(problem, device_sizes(problem, rows), "integers")
    return is_exact(device, problem, grouped_sm90.default_config(problem, **config), operands)


def small(mode: str, **chosen: Any) -> GroupedGemm:
    """Five groups of up to 72 rows, n = 136 and k = 400: no multiples of tiles."""
    m = {"masked": 72, "batched": 72, "contiguous": 200}[mode]
    return GroupedGemm(mode, 5, m, 136, 400, **chosen)


@pytest.mark.parametrize("config", [STRAIGHT, SWAPPED], ids=["straight", "swapped"])
@pytest.mark.parametrize(
    "chosen",
    [
        {**BLOCK},
        {**BLOCK, "b": "e5m2", "d": "f16"},
        {**GROUP, "d": "f32"},
        {"scale": "tensor"},
        {"scale": "rowcol", "d": "f32"},
        {"scale": "rowcol", "accumulate": "promoted"},
        {"a": "bf16", "b": "bf16"},
        {"a": "f16", "b": "f16", "d": "f32", "accumulate": "promoted"},
    ],
    ids=lambda c: "-".join(c.values()),
)
@pytest.mark.parametrize("mode", ["masked", "contiguous"])
def test_groups_of_any_size_are_exact(
    device: Device, mode: str, chosen: dict[str, Any], config: dict[str, Any]
) -> None:
    assert computes(device, small(mode, **chosen), ROWS, config)


@pytest.mark.parametrize(
    "config",
    [
        {"tile_m": 128, "tile_n": 128},
        {"tile_m": 128, "tile_n": 48, "cluster_m": 2},
        {"tile_m": 64, "tile_n": 64, "cluster_n": 2},
        {"tile_m": 192, "tile_n": 64, "warpgroups": 1, "stages": 1},
        {"tile_m": 192, "tile_n": 128, "warpgroups": 3, "cluster_n": 2},
        {"swap_ab": True, "tile_m": 24, "tile_n": 64, "stages": 1},
        {"swap_ab": True, "tile_m": 16, "cluster_m": 2},
        {"swap_ab": True, "tile_m": 40, "cluster_n": 2, "hint": "evict_first"},
        {"swap_ab": True, "tile_m": 72, "tile_n": 192, "token_step": 32, "warpgroups": 1},
        {"swap_ab": True, "tile_m": 136, "tile_n": 128, "token_step": 64},
        {"swap_ab": True, "tile_m": 40, "tile_n": 256, "store": "global"},
    ],
    ids=str,
)
def test_tiles_and_clusters_are_exact(device: Device, config: dict[str, Any]) -> None:
    problem = GroupedGemm("masked", 4, 200, 264, 400, **BLOCK)
    assert computes(device, problem, [150, 0, 3, 200], config)


@pytest.mark.parametrize("config", [STRAIGHT, SWAPPED], ids=["straight", "swapped"])
@pytest.mark.parametrize(
    "rows", [[0, 0, 0, 0, 0], [0, 72, 0, 0, 0], [72, 72, 72, 72, 72], [1, 1, 1, 1, 1]], ids=str
)
def test_empty_full_and_single_groups_are_exact(
    device: Device, rows: list[int], config: dict[str, Any]
) -> None:
    assert computes(device, small("masked", **BLOCK), rows, config)


@pytest.mark.parametrize("config", [STRAIGHT, SWAPPED], ids=["straight", "swapped"])
def test_sizes_outside_the_matrix_are_clamped(device: Device, config: dict[str, Any]) -> None:
    problem = small("masked", **BLOCK)
    sizes = np.asarray([100, -5, 2**31 - 1, -(2**31), 7], np.int32)
    operands = make_grouped_operands(problem, sizes, "integers")
    chosen = grouped_sm90.default_config(problem, **config)
    assert is_exact(device, problem, chosen, operands)


@pytest.mark.parametrize("config", [STRAIGHT, SWAPPED], ids=["straight", "swapped"])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("index", "alignment"), [("offsets", 1), ("ends", 1), ("ends", 40)])
def test_every_description_of_segments_is_read(
    device: Device, index: str, alignment: int, bits: int, config: dict[str, Any]
) -> None:
    problem = GroupedGemm(
        "contiguous", 5, 260, 136, 256, index=index, alignment=alignment, index_bits=bits,
        **BLOCK,
    )  # fmt: skip
    assert computes(device, problem, ROWS, config)


@pytest.mark.parametrize("alignment", [1, 40])
@pytest.mark.parametrize(
    "config",
    [STRAIGHT, SWAPPED, {"tile_m": 64, "cluster_m": 2},
     {"swap_ab": True, "tile_m": 24, "cluster_m": 2}],
    ids=str,
)  # fmt: skip
def test_rows_that_name_their_group_are_exact(
    device: Device, config: dict[str, Any], alignment: int
) -> None:
    problem = GroupedGemm(
        "contiguous", 5, 260, 136, 256, index="rows", alignment=alignment, **BLOCK
    )
    assert computes(device, problem, ROWS, config)


def test_rows_may_name_groups_in_any_order(device: Device) -> None:
    problem = GroupedGemm("contiguous", 5, 64, 136, 256, index="rows", **BLOCK)
    sizes = np.asarray([3] * 9 + [-1] * 3 + [0] * 20 + [7] * 2 + [3] * 1 + [-1] * 29, np.int32)
    operands = make_grouped_operands(problem, sizes, "integers")
    assert is_exact(device, problem, grouped_sm90.default_config(problem, **SWAPPED), operands)


SUMS: list[tuple[dict[str, Any], list[int]]] = [
    ({**GROUP, "d": "f32", "alignment": 16}, [384, 0, 144, 256]),
    ({**GROUP, "d": "f32", "alignment": 16}, [48, 144, 128, 144]),
    ({**GROUP, "d": "f32", "alignment": 128}, [384, 0, 128, 256]),
    ({"a": "bf16", "b": "bf16", "d": "f32", "alignment": 8}, [384, 0, 104, 301]),
    ({"d": "f32", "accumulate": "promoted", "alpha": 0.5, "alignment": 16}, [16, 16, 160, 605]),
]
"""kgrouped: what is chosen, and the K of each group: of 800, the rest is NaN."""


@pytest.mark.parametrize("case", SUMS, ids=str)
@pytest.mark.parametrize(
    "config",
    [{}, {"cluster_m": 2}, {"tile_n": 64, "cluster_n": 2}, {"store": "global"}, {"stages": 1},
     {"swap_ab": True, "store": "global"}],
    ids=str,
)  # fmt: skip
def test_sums_over_parts_of_k_are_added_to_d(
    device: Device, case: tuple[dict[str, Any], list[int]], config: dict[str, Any]
) -> None:
    chosen, lengths = case
    problem = GroupedGemm("kgrouped", 4, 136, 136, 800, **chosen)
    assert computes(device, problem, lengths, config)


@pytest.mark.parametrize("m", [64, 136, 328])
@pytest.mark.parametrize("config", [{}, {"cluster_m": 2}, {"cluster_n": 2, "tile_n": 64}], ids=str)
def test_sums_of_three_warpgroups_are_added_to_d(
    device: Device, m: int, config: dict[str, Any]
) -> None:
    problem = GroupedGemm("kgrouped", 3, m, 136, 528, d="f32", alignment=16, **GROUP)
    chosen = {"tile_m": 192, "tile_n": 128, "warpgroups": 3, **config}
    assert computes(device, problem, [384, 0, 144], chosen)


@pytest.mark.parametrize("groups", [1, 2, 31, 32, 33, 100, 512])
def test_any_number_of_groups_is_exact(device: Device, groups: int) -> None:
    problem = GroupedGemm("masked", groups, 8, 16, 128, **BLOCK)
    rows = np.random.default_rng(groups).integers(0, 9, groups).tolist()
    assert computes(device, problem, rows, {"swap_ab": True, "tile_m": 8, "tile_n": 64})


@pytest.mark.parametrize("config", [STRAIGHT, SWAPPED], ids=["straight", "swapped"])
@pytest.mark.parametrize("scale", ["none", "block"])
def test_k_of_zero_gives_zeros(device: Device, scale: str, config: dict[str, Any]) -> None:
    accumulate = "promoted" if scale == "block" else "fast"
    problem = GroupedGemm("masked", 3, 40, 136, 0, scale=scale, accumulate=accumulate)
    assert computes(device, problem, [40, 0, 3], config)


@pytest.mark.parametrize("config", [STRAIGHT, SWAPPED], ids=["straight", "swapped"])
def test_strides_and_scales_of_any_order_are_read_in_place(
    device: Device, config: dict[str, Any]
) -> None:
    m, n, k = 72, 136, 256
    problem = GroupedGemm(
        "masked", 3, m, n, k, d="bf16", a_stride=k + 16, b_stride=k + 32, d_stride=n + 8,
        a_group_stride=100 * (k + 16), b_group_stride=(n + 3) * (k + 32),
        d_group_stride=(m + 5) * (n + 8), scale_a_strides=(4 * m, 1, m + 7),
        scale_b_strides=(64, 1, 3), **BLOCK,
    )  # fmt: skip
    assert computes(device, problem, [72, 0, 19], config)


@pytest.mark.slow
@pytest.mark.parametrize("operand", ["a", "b", "d"])
def test_groups_may_lie_beyond_2_to_the_31_elements(device: Device, operand: str) -> None:
    far: dict[str, Any] = {f"{operand}_group_stride": 2**31 + 4096}
    problem = GroupedGemm("masked", 2, 8, 64, 128, **BLOCK, **far)
    config = grouped_sm90.default_config(problem, swap_ab=True, tile_m=8)
    plan = grouped_sm90.plan(problem, config)
    sizes = device_sizes(problem, [5, 7])
    near = make_grouped_operands(GroupedGemm("masked", 2, 8, 64, 128, **BLOCK), sizes, "integers")
    starts, bases = {}, {}
    for buffer in plan.launch.buffers:
        bases[buffer.name] = device.alloc(buffer.nbytes)
        x = getattr(near, buffer.name, None)
        if x is not None and buffer.name in ("a", "b"):
            step = problem.group_stride(buffer.name)
            for group in range(2):
                device.write(bases[buffer.name] + group * step, x[group].tobytes())
        elif x is not None:
            device.write(bases[buffer.name], x.tobytes())
        starts[buffer.name] = bases[buffer.name]
    device.launch(plan.launch, render(plan).text, starts)
    want = problem.reference(*_inputs(near)).astype(np.float32).astype(numpy_dtype("bf16"))
    for group, rows in enumerate([5, 7]):
        place = bases["d"] + group * problem.group_stride("d") * 2
        d = np.frombuffer(device.read(place, rows * 128), np.uint8).view(numpy_dtype("bf16"))
        assert np.array_equal(d.reshape(rows, 64), want[group, :rows])
    for base in bases.values():
        device.free(base)


@pytest.mark.parametrize("config", [STRAIGHT, SWAPPED], ids=["straight", "swapped"])
def test_d_that_tma_cannot_address_is_exact(device: Device, config: dict[str, Any]) -> None:
    problem = GroupedGemm("masked", 3, 40, 45, 256, d_stride=47, **BLOCK)
    assert computes(device, problem, [40, 0, 19], config)


@pytest.mark.parametrize(
    "options",
    [Options(schedule="eager"), Options(schedule="run_to_block"),
     *(Options(schedule="random", seed=s) for s in range(3))],
    ids=lambda o: f"{o.schedule}{o.seed}",
)  # fmt: skip
@pytest.mark.parametrize(
    "config", [STRAIGHT, SWAPPED, {"swap_ab": True, "tile_m": 16, "cluster_m": 2}], ids=str
)
def test_no_schedule_changes_the_result(options: Options, config: dict[str, Any]) -> None:
    assert computes(EmulatorDevice(options), small("contiguous", **BLOCK), ROWS, config)


@pytest.mark.parametrize("chosen", [BLOCK, GROUP, {"scale": "rowcol"}, {"a": "bf16", "b": "bf16"}],
                         ids=lambda c: "-".join(c.values()))  # fmt: skip
def test_swapping_changes_no_bit(device: Device, chosen: dict[str, Any]) -> None:
    problem = small("masked", **chosen)
    operands = make_grouped_operands(problem, device_sizes(problem, ROWS), "random")
    exact = EmulatorDevice(Options(exact=True)) if device.name == "emulator" else device
    runs = [
        run_grouped(exact, problem, grouped_sm90.default_config(problem, **config), operands).d
        for config in (STRAIGHT, SWAPPED)
    ]
    assert np.array_equal(runs[0].view(np.uint16), runs[1].view(np.uint16))


@pytest.mark.parametrize("chosen", [BLOCK, {"scale": "rowcol"}, {"a": "bf16", "b": "bf16"}],
                         ids=lambda c: "-".join(c.values()))  # fmt: skip
def test_swapping_a_dense_problem_changes_no_bit(device: Device, chosen: dict[str, Any]) -> None:
    problem = Gemm(20, 264, 400, **{"a": "e4m3", "b": "e4m3", **chosen})
    operands = make_operands(problem, "random")
    exact = EmulatorDevice(Options(exact=True)) if device.name == "emulator" else device
    runs = [
        run_gemm(exact, problem, config, operands).d
        for config in (
            gemm_sm90.default_config(problem),
            grouped_sm90.default_config(problem, swap_ab=True, tile_m=16),
        )
    ]
    assert np.array_equal(runs[0].view(np.uint16), runs[1].view(np.uint16))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"epilogue": Epilogue(bias="column")}, "bias=column"),
        ({"epilogue": Epilogue(c="f32", beta=2.0)}, "c=f32, beta=2.0"),
        ({"epilogue": Epilogue(amax=True)}, "amax=True"),
        ({"epilogue": Epilogue(activation="gelu")}, "activation=gelu"),
        ({"d": "e4m3"}, "d=e4m3"),
        ({**BLOCK, "scale_format": "ue8m0"}, "scale_format=ue8m0"),
        ({**GROUP, "scale_format": "ue8m0x4"}, "scale_format=ue8m0x4"),
    ],
)  # fmt: skip
def test_a_dense_problem_keeps_its_epilogue_or_is_refused(
    asked: dict[str, Any], named: str
) -> None:
    problem = Gemm(20, 80, 256, **{"a": "e4m3", "b": "e4m3", **asked})
    plain = replace(problem, d="bf16", scale_format="f32", epilogue=Epilogue())
    config = grouped_sm90.default_config(plain, swap_ab=True)
    for refuse in (
        lambda: grouped_sm90.plan(problem, config),
        lambda: grouped_sm90.default_config(problem, swap_ab=True),
        lambda: grouped_sm90.check_operands(problem),
        lambda: next(grouped_sm90.configs(problem)),
    ):
        with pytest.raises(ConfigError, match=f"got {named}; try .*swap_ab off"):
            refuse()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "config",
    [{"tile_m": 128}, {"tile_m": 192, "warpgroups": 3}, {"tile_m": 128, "cluster_m": 2},
     {"swap_ab": True, "tile_m": 40}, {"swap_ab": True, "tile_m": 160, "token_step": 32},
     {"swap_ab": True, "tile_m": 104, "token_step": 8, "cluster_n": 2}],
    ids=str,
)  # fmt: skip
def test_2000_runs_on_the_gpu_give_the_same_bits(config: dict[str, Any]) -> None:
    from ptxgen.launcher.device import GpuDevice
    from ptxgen.launcher.launching import PreparedCall

    gpu = GpuDevice.get()
    problem = GroupedGemm("masked", 8, 200, 1032, 2048, **BLOCK)
    operands = make_grouped_operands(problem, device_sizes(problem, [200, 0, 3, 160, 64, 97, 8, 1]))
    plan = grouped_sm90.plan(problem, grouped_sm90.default_config(problem, **config))
    call = PreparedCall(gpu, plan.launch, render(plan).text)
    contents = operands.contents()
    addresses = {b.name: gpu.alloc(b.nbytes) for b in plan.launch.buffers}
    try:
        for name, x in contents.items():
            gpu.write(addresses[name], x.tobytes())
        found = set()
        for _ in range(2000):
            gpu.fill(addresses["d"], problem.extent_bytes("d"))
            call(addresses)
            found.add(gpu.read(addresses["d"], problem.extent_bytes("d")))
    finally:
        for address in addresses.values():
            gpu.free(address)
    assert len(found) == 1


def zeroed_row(a: Any) -> None:
    a[2, 16] = 0


def zeroed_k_tile(a: Any) -> None:
    a[0, :70, 128:256] = 0


@pytest.mark.parametrize("damage", [zeroed_row, zeroed_k_tile])
def test_the_comparison_rejects_a_damaged_operand(damage: Any) -> None:
    problem = small("masked", **BLOCK)
    operands = make_grouped_operands(problem, device_sizes(problem, ROWS), "integers")
    config = grouped_sm90.default_config(problem, **SWAPPED)
    whole = problem.reference(*_inputs(operands))
    damage(operands.a)
    d = run_grouped(EmulatorDevice(), problem, config, operands).d.astype(np.float64)
    want = whole.astype(np.float32).astype("bfloat16").astype(np.float64)
    assert not np.array_equal(d, want, equal_nan=True)


def _inputs(operands: Any) -> tuple[Any, ...]:
    return operands.sizes, operands.a, operands.b, operands.scale_a, operands.scale_b


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alignment": 2**31}, "alignment=2147483648 must be at least 1 and below 2^31; try 1"),
        ({"a_alignment": "x"}, "a_alignment must be an integer, got 'x'; try int(a_alignment)"),
        (
            {"scale_a_strides": None},
            "scale_a_strides must be three integers, got None; try (0, 0, 0)",
        ),
        (
            {"scale_b_strides": (1, -1, 1)},
            "scale_b_strides must not be negative, got (1, -1, 1); try a copy",
        ),
        ({"groups": 0}, "groups=0 must be from 1 to 512; try 1"),
        ({"groups": 513}, "groups=513 must be from 1 to 512; try several calls"),
        ({"m": 1.5}, "m must be an integer, got 1.5; try int(m)"),
        ({"groups": True}, "groups must be an integer, got True; try int(groups)"),
        ({"d_stride": 64.0}, "d_stride must be an integer, got 64.0; try int(d_stride)"),
    ],
)
def test_a_problem_that_cannot_be_is_refused_with_what_helps(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ProblemError) as error:
        GroupedGemm(**{"mode": "masked", "groups": 4, "m": 64, "n": 64, "k": 64, **changes})
    assert str(error.value) == said


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_integers_of_numpy_become_ints(kind: type) -> None:
    given = {"groups": 4, "m": 64, "n": 72, "k": 128, "d_stride": 80}
    problem = GroupedGemm("masked", **{name: kind(value) for name, value in given.items()})
    for name in given:
        assert type(getattr(problem, name)) is int

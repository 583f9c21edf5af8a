"""Looking at results: what is caught, and what is let through."""

from typing import Any

import numpy as np
import pytest

from ptxgen.benchmark.check import (
    SAMPLE,
    compare_values,
    count_poison,
    expect,
    sample_indices,
)
from ptxgen.benchmark.sets import KINDS, kind
from ptxgen.benchmark.workload import make_host_operands
from ptxgen.emulator import run as emulate
from ptxgen.emulator.options import Options
from ptxgen.kernels.gemm_sm90 import default_config, plan
from ptxgen.operands import poisoned
from ptxgen.problem import Gemm
from ptxgen.quantize import numpy_dtype
from ptxgen.renderer import render

PROBLEM = Gemm(200, 136, 1024, "e4m3", "e4m3", "bf16", scale="tensor")
TILE = (128, 64)
TUNED: dict[tuple[int, int, int], dict[str, Any]] = {
    (1, 136, 512): {"split_k": 2},
    (40, 160, 384): {"tile_m": 64, "tile_n": 32},
    (200, 136, 256): {"tile_m": 192, "tile_n": 96, "warpgroups": 3},
}
"""Fields of the config by shape: split K at few rows, a small tile, and three warpgroups."""
CASES = [
    (name, shape)
    for shape, tuned in TUNED.items()
    for name in KINDS
    if KINDS[name].accumulate == "promoted" or "warpgroups" not in tuned
]


@pytest.fixture(scope="module")
def operands() -> Any:
    return make_host_operands(PROBLEM).operands


def test_the_edges_of_every_kind_of_tile_are_looked_at() -> None:
    found = set(sample_indices(4097, 128, 0).tolist())
    assert {0, 127, 128, 4095, 4096} <= found
    assert len(found) >= SAMPLE


@pytest.mark.parametrize("fault", ["zeroed row", "one bit", "zeroed k-tile"])
def test_ours_must_be_equal_bit_for_bit(fault: str, operands: Any) -> None:
    wanted = expect(PROBLEM, operands, TILE, exact=True)
    found = wanted.values.copy()
    assert compare_values(found, wanted) == (0, 0.0)
    if fault == "zeroed row":
        found[3] = 0
    elif fault == "one bit":
        found.view(np.uint16)[5, 7] ^= 1
    else:
        from dataclasses import replace

        shorter = replace(PROBLEM, k=PROBLEM.k - 128)
        cut = replace(operands, a=operands.a[:, :-128], b=operands.b[:, :-128])
        found = expect(shorter, cut, TILE, exact=True).values
    assert compare_values(found, wanted)[0] > 0


def test_a_peer_that_sums_in_another_order_is_right(operands: Any) -> None:
    wanted = expect(PROBLEM, operands, TILE, exact=False)
    float64 = PROBLEM.reference(operands.a, operands.b, operands.scale_a, operands.scale_b)
    found = float64[np.ix_(wanted.rows, wanted.columns)].astype(numpy_dtype("bf16"))
    assert compare_values(found, wanted)[0] == 0


@pytest.mark.parametrize("factor", [0.0, 0.5, -1.0, np.nan])
def test_a_peer_with_a_wrong_block_is_caught(factor: float, operands: Any) -> None:
    wanted = expect(PROBLEM, operands, TILE, exact=False)
    found = wanted.values.copy()
    found[:8, :8] = (found[:8, :8].astype(np.float32) * factor).astype(found.dtype)
    assert compare_values(found, wanted)[0] > 32


@pytest.mark.parametrize("name", ["bf16", "f16", "f32"])
def test_unwritten_elements_are_counted(name: str) -> None:
    d = poisoned((16, 8), numpy_dtype(name))
    d[:10] = 1.5
    assert count_poison(d) == 6 * 8


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_kernel_of_every_kind_leaves_what_the_check_expects(
    name: str, shape: tuple[int, int, int]
) -> None:
    problem = kind(name).problem(shape)
    config = default_config(problem, **TUNED[shape])
    launch = plan(problem, config, num_sms=4)
    host = make_host_operands(problem)
    done = emulate(render(launch).text, launch.launch, host.storage, Options(exact=True))
    d = np.frombuffer(done.buffers["d"], numpy_dtype(problem.d)).reshape(problem.d_shape)
    parts = config.k_parts(problem.k)
    tile = (config.tile_m, config.tile_n)
    wanted = expect(problem, host.operands, tile, exact=True, k_parts=parts)
    assert compare_values(d[np.ix_(wanted.rows, wanted.columns)], wanted) == (0, 0.0)


def test_scales_lie_in_memory_as_the_problem_says() -> None:
    problem = Gemm(
        96, 256, 384, "e4m3", "e4m3", scale="block", accumulate="promoted", scale_a_strides=(1, 96)
    )
    host = make_host_operands(problem)
    stored = host.storage["scale_a"].reshape(3, 96)
    scale_a = host.operands.scale_a
    assert scale_a is not None
    assert np.array_equal(stored.T, scale_a)


@pytest.mark.parametrize("scale", ["none", "tensor", "rowcol"])
def test_operands_are_random_and_repeatable_and_no_two_rows_are_equal(scale: str) -> None:
    problem = Gemm(300, 64, 512, "e4m3", "e4m3", "bf16", scale=scale)
    first, second = make_host_operands(problem), make_host_operands(problem)
    a = first.operands.a.view(np.uint8)
    assert np.array_equal(a, second.operands.a.view(np.uint8))
    assert len(np.unique(a, axis=0)) == 300
    assert np.count_nonzero(first.operands.a.astype(np.float32)) > 0.95 * a.size

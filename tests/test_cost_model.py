"""The cost model: what its terms must do, whatever its constants are."""

from dataclasses import replace

import pytest

from ptxgen.cost_model import LAUNCH_S, estimate
from ptxgen.devices import GPU_MODELS
from ptxgen.kernels.gemm_sm90 import default_config
from ptxgen.problem import Gemm
from ptxgen.selection import model_of, rank

H200, H20 = GPU_MODELS["H200"], GPU_MODELS["H20"]


def fp8(m: int, n: int, k: int, accumulate: str = "fast") -> Gemm:
    return Gemm(m, n, k, "e4m3", "e4m3", "bf16", scale="tensor", accumulate=accumulate)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_larger_problem_never_costs_less(axis: int) -> None:
    config = default_config(fp8(4096, 4096, 4096))
    costs = []
    for size in (1024, 2048, 4096, 8192, 16384):
        m, n, k = (size if i == axis else 4096 for i in range(3))
        costs.append(estimate(fp8(m, n, k), config, H200).total)
    assert costs == sorted(costs)


def test_one_tile_beyond_a_full_wave_costs_another_wave() -> None:
    config = default_config(fp8(1536, 2816, 8192), tile_m=128, tile_n=256, cluster_m=1)
    full, over = (estimate(fp8(1536, n, 8192), config, H200) for n in (2816, 2817))
    assert (full.num_tiles, full.wave) == (132, 0)
    assert over.total - LAUNCH_S > 1.7 * (full.total - LAUNCH_S)


def test_streaming_weights_is_bound_by_memory_and_dense_work_by_the_tensor_core() -> None:
    streaming = rank(fp8(1, 7168, 16384), H200)[0].cost
    assert streaming.dram > 0.6 * (streaming.total - streaming.launch)
    assert rank(fp8(8192, 8192, 8192), H200)[0].cost.bound == "issue"


def test_promotion_costs_time_where_the_tensor_core_is_the_limit() -> None:
    config = default_config(fp8(4096, 4096, 4096, "promoted"))
    promoted = estimate(fp8(4096, 4096, 4096, "promoted"), config, H200)
    fast = estimate(fp8(4096, 4096, 4096), replace(config, accumulate="fast"), H200)
    assert promoted.total > fast.total


def test_multicast_takes_less_from_the_l2() -> None:
    problem = fp8(4096, 4096, 4096)
    config = default_config(problem, tile_m=128, tile_n=256, cluster_m=1)
    alone, pair = (estimate(problem, replace(config, cluster_m=c), H200) for c in (1, 2))
    assert pair.l2 < alone.l2


def test_a_slow_tensor_core_shifts_the_bound_at_few_rows() -> None:
    problem = fp8(128, 7168, 16384)
    config = default_config(problem, tile_m=64, tile_n=128)
    assert estimate(problem, config, H20).issue > 2 * estimate(problem, config, H200).issue


def test_fewer_sms_have_as_much_less_tensor_core_and_as_much_memory() -> None:
    half = model_of("NVIDIA H200", 66)
    assert half.fp8_tflops == H200.fp8_tflops / 2
    assert half.dram_gbytes_per_s == H200.dram_gbytes_per_s


@pytest.mark.parametrize(
    ("shape", "measured_us"),
    [((4096, 2112, 7168), 81.56), ((4096, 7168, 16384), 600.0), ((8192, 8192, 8192), 712.0)],
)
def test_the_best_prediction_is_near_what_an_h200_takes(
    shape: tuple[int, int, int], measured_us: float
) -> None:
    # cublasLt of benchmarks/peers/h200.json, and gemm_sm90 at 8192^3.
    assert rank(fp8(*shape), H200)[0].cost.total * 1e6 == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize(
    ("shape", "chosen", "measured_us"),
    [
        ((1, 2112, 7168), {"tile_n": 32, "stages": 18}, 7.14),
        ((1, 2112, 7168), {"tile_n": 32, "split_k": 2}, 7.29),
        ((1, 4096, 7168), {"tile_n": 32, "stages": 14}, 9.41),
        ((1, 4096, 7168), {"tile_n": 64, "split_k": 2}, 10.78),
        ((64, 576, 7168), {"tile_n": 40, "split_k": 8}, 5.37),
        ((64, 7168, 2048), {"tile_n": 56, "stages": 10}, 6.36),
        ((64, 24576, 1536), {"tile_n": 64, "stages": 9}, 12.22),
    ],
)
def test_predictions_of_few_rows_are_near_what_an_h200_took(
    shape: tuple[int, int, int], chosen: dict[str, int], measured_us: float
) -> None:
    problem = fp8(*shape)
    config = default_config(problem, tile_m=64, **chosen)
    assert estimate(problem, config, H200).total * 1e6 == pytest.approx(measured_us, rel=0.1)


def test_rows_that_start_within_a_sector_are_loaded_by_clusters() -> None:
    aligned, split = (rank(fp8(4096, 7168, k), H200)[0].config for k in (7168, 7184))
    assert (aligned.multicasts, split.multicasts) == (False, True)

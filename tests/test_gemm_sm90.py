"""gemm_sm90 computes D, on the emulator and on the GPU, with one body for both."""

import itertools
from typing import Any

import numpy as np
import pytest
from gemm_runs import is_exact, run_gemm

from ptxgen.exact_model import exact_result
from ptxgen.kernels import gemm_sm90
from ptxgen.launch import Device
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.verification import verify

TYPES = [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2"), ("bf16", "bf16"),
         ("f16", "f16")]  # fmt: skip
Case = tuple[tuple[str, str], str, str, str, str, tuple[int, int, int]]
"""dtypes of A and B, layout, dtype of D, scale, accumulation, (M, N, K)."""


def padded(problem_fields: dict[str, Any], extra: int = 16) -> Gemm:
    """The problem with every leading stride `extra` elements (16-byte multiples) beyond its row."""
    dense = Gemm(**problem_fields)
    up = {
        f"{x}_stride": -(-getattr(dense, f"{x}_shape")[1] // 16) * 16 + extra
        for x in ("a", "b", "d")
    }
    return Gemm(**{**problem_fields, **up})


PRODUCT = [
    (types, layout, d, scale, accumulate, size)
    for types, layout, d, scale, accumulate, size in itertools.product(
        TYPES,
        ("nt", "nn", "tn", "tt"),
        ("bf16", "f16", "f32"),
        ("none", "tensor", "rowcol"),
        ("fast", "promoted"),
        ((63, 72, 144), (128, 128, 256), (129, 136, 400)),
    )
    if layout == "nt" or types[0] in ("bf16", "f16")
]
"""Every pair of dtypes, layout, dtype of D, scale, accumulation, and sizes around tile +-1."""


def pairwise(product: list[Case]) -> list[Case]:
    """Rows that between them show every pair of values of `product`, taken greedily in order."""
    missing = {p for row in product for p in _pairs(row)}
    kept = []
    for row in product[::7] + product:
        new = _pairs(row) & missing
        if len(new) > 2 or (new and len(missing) < 40):
            kept.append(row)
            missing -= new
    assert not missing
    return kept


def _pairs(row: Case) -> set[tuple[object, ...]]:
    return set(itertools.combinations(enumerate(row), 2))


def product_case(device: Device, row: Case) -> bool:
    types, layout, d, scale, accumulate, (m, n, k) = row
    problem = padded(
        {"m": m, "n": n, "k": k, "a": types[0], "b": types[1], "d": d, "layout": layout,
         "scale": scale, "accumulate": accumulate}
    )  # fmt: skip
    return is_exact(device, problem, gemm_sm90.default_config(problem, tile_m=64, tile_n=64))


@pytest.mark.parametrize("row", pairwise(PRODUCT), ids=str)
def test_every_pair_of_properties_is_exact(device: Device, row: Case) -> None:
    assert product_case(device, row)


@pytest.mark.slow
def test_the_whole_product_is_exact(device: Device) -> None:
    assert [row for row in PRODUCT if not product_case(device, row)] == []


TILES = [
    {"tile_m": 64, "tile_n": 8, "warpgroups": 1},
    {"tile_m": 64, "tile_n": 256, "warpgroups": 1, "cluster_n": 2},
    {"tile_m": 128, "tile_n": 24, "warpgroups": 2},
    {"tile_m": 128, "tile_n": 256, "warpgroups": 2, "cluster_m": 2},
    {"tile_m": 192, "tile_n": 64, "warpgroups": 1},
    {"tile_m": 256, "tile_n": 128, "warpgroups": 2, "cluster_n": 2},
]


@pytest.mark.parametrize("swizzle", gemm_sm90.SWIZZLES)
@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t['tile_m']}x{t['tile_n']}")
def test_tiles_swizzles_and_clusters_are_exact(
    device: Device, tile: dict[str, int], swizzle: int
) -> None:
    problem = Gemm(tile["tile_m"] + 1, tile["tile_n"] + 8, 208, "bf16", "bf16", layout="nn")
    config = gemm_sm90.default_config(problem, swizzle_bytes=swizzle, **tile)
    assert is_exact(device, problem, config)


@pytest.mark.parametrize("k_tiles", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("stages", [1, 3])
def test_k_around_the_number_of_stages_is_exact(device: Device, k_tiles: int, stages: int) -> None:
    problem = Gemm(130, 72, k_tiles * 128, "e4m3", "e4m3", accumulate="promoted")
    assert is_exact(device, problem, gemm_sm90.default_config(problem, stages=stages, tile_n=64))


@pytest.mark.parametrize("delta", [-1, 0, 1])
def test_sizes_around_the_tile_are_exact(device: Device, delta: int) -> None:
    problem = padded({"m": 128 + delta, "n": 64 + delta, "k": 128 + 16 * delta, "a": "bf16"})
    assert is_exact(device, problem, gemm_sm90.default_config(problem, tile_m=128, tile_n=64))


@pytest.mark.parametrize(("a", "k"), [("e4m3", 99), ("bf16", 51)])
def test_gap_behind_a_row_is_never_read(device: Device, a: str, k: int) -> None:
    assert is_exact(device, Gemm(70, 72, k, a, a, a_stride=112, b_stride=112))


@pytest.mark.parametrize("m", [1, 8, 9, 31])
@pytest.mark.parametrize("tile_n", [16, 64])
def test_tiles_of_few_rows_are_exact(device: Device, tile_n: int, m: int) -> None:
    problem = Gemm(m, 136, 400, "bf16", "bf16")
    config = gemm_sm90.default_config(problem, tile_n=tile_n)
    assert config.a_rows
    assert is_exact(device, problem, config)


@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("tile_n", [16, 64, 112, 128])
@pytest.mark.parametrize("scale", ["block", "group"])
def test_block_scales_are_exact(device: Device, scale: str, tile_n: int, major: str) -> None:
    m, n, k = 131, 264, 3 * 128 + 48
    rows_b = -(-n // 128) if scale == "block" else n
    strides: dict[str, Any] = {} if major == "k" else {
        "scale_a_strides": (1, m + 5), "scale_b_strides": (1, rows_b + 1)
    }  # fmt: skip
    problem = Gemm(m, n, k, "e4m3", "e5m2", scale=scale, accumulate="promoted", **strides)
    assert is_exact(device, problem, gemm_sm90.default_config(problem, tile_n=tile_n))


@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("scale_format", ["ue8m0", "ue8m0x4"])
@pytest.mark.parametrize(
    ("scale", "chosen"),
    [
        ("block", {"tile_n": 128}),
        ("group", {"tile_n": 64}),
        ("block", {"tile_n": 40, "split_k": 4}),
    ],
)
def test_ue8m0_block_scales_are_exact(
    device: Device, scale: str, chosen: dict[str, int], scale_format: str, major: str
) -> None:
    m, n, k = 131, 264, 8 * 128 + 48
    rows_b = -(-n // 128) if scale == "block" else n
    strides: dict[str, Any] = {} if major == "k" else {
        "scale_a_strides": (1, m + 5), "scale_b_strides": (1, rows_b + 1)
    }  # fmt: skip
    problem = Gemm(m, n, k, "e4m3", "e5m2", scale=scale, accumulate="promoted",
                   scale_format=scale_format, **strides)  # fmt: skip
    assert is_exact(device, problem, gemm_sm90.default_config(problem, **chosen))


@pytest.mark.parametrize("k_blocks", [1, 2, 3, 4, 5])
def test_block_scales_are_exact_for_any_number_of_k_tiles(device: Device, k_blocks: int) -> None:
    problem = Gemm(192, 72, 128 * k_blocks, "e4m3", "e4m3", scale="block", accumulate="promoted")
    three = {"tile_m": 192, "warpgroups": 3}
    one = {"tile_m": 192, "warpgroups": 1, "tile_n": 64}
    for tile in (one, three, {"stages": 1}, {"stages": 2}):
        assert is_exact(device, problem, gemm_sm90.default_config(problem, **tile))


@pytest.mark.parametrize("k", [0, 128, 384, 640])
@pytest.mark.parametrize("tile_n", [24, 64, 256])
def test_deferred_stores_are_exact(device: Device, tile_n: int, k: int) -> None:
    problem = Gemm(300, 520, k, "e4m3", "e4m3", scale="rowcol")
    config = gemm_sm90.default_config(problem, store="deferred", tile_m=128, tile_n=tile_n)
    assert is_exact(device, problem, config)


@pytest.mark.parametrize("k", [0, 128, 384, 1168])
@pytest.mark.parametrize("split_k", [2, 4, 8])
@pytest.mark.parametrize("scale", ["rowcol", "block"])
def test_split_k_is_exact(device: Device, scale: str, split_k: int, k: int) -> None:
    accumulate = "promoted" if scale == "block" else "fast"
    problem = Gemm(70, 131, k, "e4m3", "e4m3", scale=scale, accumulate=accumulate)
    config = gemm_sm90.default_config(problem, split_k=split_k, tile_m=64, tile_n=40)
    assert is_exact(device, problem, config)


@pytest.mark.parametrize(("m", "n"), [(0, 16), (16, 0), (0, 0)])
def test_empty_d_writes_nothing(device: Device, m: int, n: int) -> None:
    assert is_exact(device, Gemm(m, n, 64))


@pytest.mark.parametrize("d", ["bf16", "f32"])
def test_d_that_tma_cannot_address_is_exact(device: Device, d: str) -> None:
    problem = Gemm(70, 45, 96, d=d, d_stride=47, scale="rowcol")
    assert not gemm_sm90.default_config(problem).stores_by_tma
    assert is_exact(device, problem)


@pytest.mark.parametrize("extra", [0, 1, 2, 4, 6])
@pytest.mark.parametrize("n", [1, 7, 9, 64, 67, 135])
@pytest.mark.parametrize("store", ["global", "deferred_global"])
def test_rows_are_exact_wherever_they_start_and_end(
    device: Device, store: str, n: int, extra: int
) -> None:
    problem = Gemm(150, n, 320, "e4m3", "e4m3", d_stride=n + extra, d_alignment=2)
    config = gemm_sm90.default_config(problem, store=store, tile_m=128, tile_n=72)
    assert is_exact(device, problem, config)


@pytest.mark.parametrize("accumulate", ["fast", "promoted"])
@pytest.mark.parametrize("a", ["e4m3", "bf16"])
def test_random_data_lies_within_the_bounds(device: Device, a: str, accumulate: str) -> None:
    problem = Gemm(150, 88, 560, a, a, scale="rowcol", accumulate=accumulate)
    operands = make_operands(problem, "random", seed=3)
    run = run_gemm(device, problem, None, operands)
    verdict = verify(problem, operands, run.d, exact=device.name != "emulator")
    assert verdict.ok, str(verdict)


def test_split_k_adds_the_parts_in_order(device: Device) -> None:
    problem = Gemm(150, 88, 1104, "e4m3", "e4m3", scale="rowcol")
    config = gemm_sm90.default_config(problem, split_k=4)
    operands = make_operands(problem, "random", seed=5)
    run = run_gemm(device, problem, config, operands)
    verdict = verify(
        problem, operands, run.d, exact=device.name != "emulator",
        k_parts=config.k_parts(problem.k),
    )  # fmt: skip
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("scale", ["block", "group"])
def test_random_data_with_block_scales_lies_within_the_bounds(device: Device, scale: str) -> None:
    problem = Gemm(150, 200, 560, "e4m3", "e4m3", scale=scale, accumulate="promoted")
    operands = make_operands(problem, "random", seed=3)
    run = run_gemm(device, problem, None, operands)
    verdict = verify(problem, operands, run.d, exact=device.name != "emulator")
    assert verdict.ok, str(verdict)


def zero_row(d: np.ndarray) -> None:
    d[77] = 0


def zero_block(d: np.ndarray) -> None:
    d[8:16, 8:16] = 0


@pytest.mark.parametrize("damage", [zero_row, zero_block])
def test_verification_rejects_a_zeroed_part(damage: object) -> None:
    problem = Gemm(150, 88, 4096, "e4m3", "e4m3", scale="rowcol")
    operands = make_operands(problem, "random")
    d = exact_result(problem, operands, np.arange(150), np.arange(88))
    assert verify(problem, operands, d, exact=True).ok
    damage(d)  # type: ignore[operator]
    assert not verify(problem, operands, d).ok


def test_verification_rejects_a_missing_k_tile() -> None:
    problem = Gemm(150, 88, 4096, "e4m3", "e4m3", scale="rowcol")
    operands = make_operands(problem, "random")
    damaged = make_operands(problem, "random")
    damaged.a[:, 128:256] = 0
    d = exact_result(problem, damaged, np.arange(150), np.arange(88))
    assert not verify(problem, operands, d).ok

"""gemm_mma computes D for any stride, base and layout, on the emulator and on the GPU alike."""

import gemm_runs
import numpy as np
import pytest
from gemm_runs import run_gemm

from ptxgen.dtypes import dtype
from ptxgen.kernels import gemm_mma
from ptxgen.kernels.gemm_mma_config import TILE_K_BYTES, Config
from ptxgen.launch import Device
from ptxgen.operands import make_operands
from ptxgen.problem import LAYOUTS, Gemm
from ptxgen.verification import verify

TYPES = [("bf16", "bf16"), ("f16", "f16"), ("e4m3", "e5m2")]


def is_exact(device: Device, problem: Gemm, config: Config | None = None) -> bool:
    return gemm_runs.is_exact(device, problem, config or gemm_mma.default_config(problem))


def strided(extra: int, start_elements: int = 0, **fields: object) -> Gemm:
    """A problem whose rows are `extra` elements apart, and whose operands start so many elements
    past an aligned address."""
    dense = Gemm(**fields)  # type: ignore[arg-type]
    views: dict[str, int] = {}
    for x in ("a", "b", "d"):
        start = start_elements * dtype(getattr(dense, x)).bytes
        views[f"{x}_stride"] = max(1, getattr(dense, f"{x}_shape")[1] + extra)
        views[f"{x}_alignment"] = start & -start if start else 256
    return Gemm(**{**fields, **views})  # type: ignore[arg-type]


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("types", TYPES)
def test_every_layout_is_exact_at_even_and_odd_strides(
    device: Device, types: tuple[str, str], layout: str, extra: int
) -> None:
    problem = strided(extra, m=77, n=134, k=102, a=types[0], b=types[1], layout=layout)
    assert is_exact(device, problem)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("types", TYPES)
def test_every_layout_is_exact_in_a_large_tile(
    device: Device, types: tuple[str, str], layout: str
) -> None:
    problem = Gemm(128, 128, 256, *types, layout=layout)
    tile = {"tile_m": 128, "tile_n": 128, "warps_m": 2, "warps_n": 4}
    assert is_exact(device, problem, gemm_mma.default_config(problem, **tile))


@pytest.mark.parametrize("layout", ["nt", "tn"])
@pytest.mark.parametrize(
    ("a", "stride", "copy_bytes"),
    [("bf16", 136, 16), ("bf16", 132, 8), ("bf16", 130, 4), ("bf16", 129, 2),
     ("e4m3", 144, 16), ("e4m3", 136, 8), ("e4m3", 132, 4), ("e4m3", 130, 2), ("e4m3", 129, 1)],
)  # fmt: skip
def test_every_size_of_copy_is_exact(
    device: Device, a: str, stride: int, copy_bytes: int, layout: str
) -> None:
    problem = Gemm(128, 128, 128, a, a, layout=layout, a_stride=stride, b_stride=stride)
    config = gemm_mma.default_config(problem, tile_m=64, tile_n=64)
    assert (config.a_copy_bytes, config.b_copy_bytes) == (copy_bytes, copy_bytes)
    assert is_exact(device, problem, config)


@pytest.mark.parametrize(("a_copy", "b_copy"), [(16, 2), (2, 16)])
def test_operands_may_be_copied_in_different_ways(device: Device, a_copy: int, b_copy: int) -> None:
    strides = {16: 104, 2: 101}
    problem = Gemm(70, 70, 96, a_stride=strides[a_copy], b_stride=strides[b_copy])
    config = gemm_mma.default_config(problem)
    assert (config.a_copy_bytes, config.b_copy_bytes) == (a_copy, b_copy)
    assert is_exact(device, problem, config)


@pytest.mark.parametrize("start", [1, 2, 3, 4])
@pytest.mark.parametrize("a", ["bf16", "e4m3"])
def test_any_base_is_exact(device: Device, a: str, start: int) -> None:
    assert is_exact(device, strided(3, start, m=65, n=90, k=70, a=a, b=a, d="f32", layout="nn"))


@pytest.mark.parametrize("delta", [-1, 0, 1])
@pytest.mark.parametrize("a", ["bf16", "e4m3"])
def test_sizes_around_the_tile_are_exact(device: Device, a: str, delta: int) -> None:
    problem = Gemm(64 + delta, 64 + delta, 128 + delta, a, a)
    assert is_exact(device, problem, gemm_mma.default_config(problem, tile_m=64, tile_n=64))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 300), (300, 1), (15, 17)])
@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_thin_problems_are_exact(device: Device, layout: str, m: int, n: int) -> None:
    assert is_exact(device, Gemm(m, n, 65, layout=layout))
    assert is_exact(device, Gemm(m, n, 65, "e4m3", "e4m3", layout=layout))


@pytest.mark.parametrize("copy_bytes", [16, 2])
@pytest.mark.parametrize("k_tiles", [0, 1, 2, 3, 4, 5, 6])
def test_any_number_of_k_tiles_is_exact(device: Device, k_tiles: int, copy_bytes: int) -> None:
    problem = Gemm(32, 32, 32 * k_tiles, a_stride=193 if copy_bytes == 2 else 192)
    for stages in (3, 5):
        config = gemm_mma.default_config(problem, stages=stages, tile_k=32)
        assert is_exact(device, problem, config)


@pytest.mark.parametrize(("m", "n"), [(0, 16), (16, 0), (0, 0)])
def test_empty_d_writes_nothing(device: Device, m: int, n: int) -> None:
    assert is_exact(device, Gemm(m, n, 64))


@pytest.mark.parametrize(("d_stride", "d_store_bytes"), [(66, 2), (65, 1)])
@pytest.mark.parametrize("d", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("scale", ["none", "tensor", "rowcol"])
def test_every_d_and_scale_is_exact(
    device: Device, scale: str, d: str, d_stride: int, d_store_bytes: int
) -> None:
    problem = Gemm(47, 63, 64, d=d, scale=scale, layout="tn", d_stride=d_stride, alpha=0.5)
    config = gemm_mma.default_config(problem)
    assert config.d_store_bytes == d_store_bytes * dtype(d).bytes
    assert is_exact(device, problem, config)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_row_and_column_scales_find_the_rows_and_columns_of_fp8(
    device: Device, layout: str
) -> None:
    assert is_exact(device, Gemm(50, 70, 96, "e4m3", "e4m3", scale="rowcol", layout=layout))


@pytest.mark.parametrize("k", [100, 128, 300])
@pytest.mark.parametrize("types", TYPES)
def test_promoted_sums_are_exact(device: Device, types: tuple[str, str], k: int) -> None:
    problem = Gemm(40, 50, k, *types, scale="rowcol", accumulate="promoted", layout="tn")
    for k_bytes in TILE_K_BYTES:
        tile = {"tile_k": k_bytes // dtype(types[0]).bytes}
        assert is_exact(device, problem, gemm_mma.default_config(problem, **tile))


TILES = [
    (16, 16, 1, 1), (16, 128, 1, 4), (128, 16, 4, 1), (32, 256, 1, 8), (256, 32, 8, 1),
    (64, 64, 4, 2), (128, 256, 2, 4), (256, 64, 4, 1), (64, 128, 2, 2),
]  # fmt: skip


@pytest.mark.parametrize(("tile_m", "tile_n", "warps_m", "warps_n"), TILES)
@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_every_shape_of_tile_is_exact(
    device: Device, layout: str, tile_m: int, tile_n: int, warps_m: int, warps_n: int
) -> None:
    problem = Gemm(tile_m + 8, tile_n + 8, 144, layout=layout)
    config = gemm_mma.default_config(
        problem, tile_m=tile_m, tile_n=tile_n, warps_m=warps_m, warps_n=warps_n, tile_k=64, stages=3
    )
    assert is_exact(device, problem, config)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a"])
def test_text_of_older_targets_is_exact(device: Device, target: str) -> None:
    a = "bf16" if target == "sm_80" else "e4m3"
    problem = Gemm(33, 40, 77, a, a)
    assert is_exact(device, problem, gemm_mma.default_config(problem, target=target))


@pytest.mark.parametrize("accumulate", ["fast", "promoted"])
@pytest.mark.parametrize(("a", "layout"), [("bf16", "nt"), ("e4m3", "nt"), ("e4m3", "tn")])
def test_random_data_lies_within_the_bounds(
    device: Device, a: str, layout: str, accumulate: str
) -> None:
    problem = Gemm(70, 88, 430, a, a, scale="rowcol", accumulate=accumulate, layout=layout)
    operands = make_operands(problem, "random", seed=3)
    run = run_gemm(device, problem, gemm_mma.default_config(problem), operands)
    exact = device.name != "emulator"
    verdict = verify(problem, operands, run.d, exact=exact, unit=gemm_mma.UNIT)
    assert verdict.ok, str(verdict)


def test_emulator_sums_bit_for_bit_like_the_model() -> None:
    from ptxgen.emulator import EmulatorDevice, Options

    device = EmulatorDevice(Options(exact=True))
    for a in ("bf16", "e4m3"):
        problem = Gemm(40, 50, 300, a, a, layout="tn")
        operands = make_operands(problem, "random", seed=1)
        run = run_gemm(device, problem, gemm_mma.default_config(problem), operands)
        assert verify(problem, operands, run.d, exact=True, unit=gemm_mma.UNIT).ok


def test_bits_of_a_row_do_not_depend_on_m_or_the_tile(device: Device) -> None:
    whole = Gemm(65, 40, 400, "e4m3", "e4m3")
    operands = make_operands(whole, "random", seed=2)
    want = run_gemm(device, whole, gemm_mma.default_config(whole), operands).d
    for m in (1, 17, 64):
        part = Gemm(m, 40, 400, "e4m3", "e4m3")
        first_rows = type(operands)(operands.a[:m], operands.b, None, None)
        config = gemm_mma.default_config(part, tile_k=128)
        got = run_gemm(device, part, config, first_rows).d
        assert np.array_equal(got.view(np.uint16), want[:m].view(np.uint16))

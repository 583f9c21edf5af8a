"""grouped_gemm takes arrays of any mode, chooses by itself, and refuses by name."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from grouped_runs import assert_shares_a_tile
from numpy.lib.stride_tricks import as_strided

from ptxgen.emulator import EmulatorDevice
from ptxgen.errors import ArgumentError, ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import gemm_sm90, grouped_sm90
from ptxgen.launcher import RawArray, grouped_gemm
from ptxgen.problem import Gemm

E4M3 = ml_dtypes.float8_e4m3fn
ROWS = np.asarray([3, 0, 17, 8], np.int32)
OFFSETS = np.asarray([0, 3, 3, 20, 28], np.int64)


def integers(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Small integers in e4m3, whose products sum exactly."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(E4M3)


def powers(shape: tuple[int, ...], seed: int = 1) -> Any:
    return np.exp2(np.random.default_rng(seed).integers(-1, 2, shape)).astype(np.float32)


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64).T


def bf16(x: Any) -> Any:
    return x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("swap_ab", ["auto", "on", "off"])
def test_masked_groups_get_their_rows_and_no_others(swap_ab: str) -> None:
    a, b = integers((4, 24, 200)), integers((4, 130, 200), 1)
    out = np.full((4, 24, 130), 7, ml_dtypes.bfloat16)
    d = grouped_gemm(a, b, ROWS, swap_ab=swap_ab, out=out, device="emulator")
    assert d is out
    for group, rows in enumerate(ROWS):
        assert np.array_equal(
            d[group, :rows].astype(float), bf16(product(a[group, :rows], b[group]))
        )
        assert (d[group, rows:] == 7).all()


def test_integers_may_be_of_numpy() -> None:
    a, b = integers((28, 128)), integers((4, 16, 128), 1)
    given = {"groups": 4, "expected_rows": 7, "alignment": 8}
    ends = np.asarray([3, 8, 20, 28], np.int32)
    got = [
        grouped_gemm(a, b, ends, mode="contiguous", index="ends", device="emulator", **options)
        for options in (given, {name: np.int64(value) for name, value in given.items()})
    ]
    assert np.array_equal(*got)


def test_tiles_shared_along_k_need_no_workspace_of_the_caller() -> None:
    a, b = integers((4, 24, 2048)), integers((4, 128, 2048), 1)
    problem = GroupedGemm("masked", 4, 24, 128, 2048, d="f32")
    config = grouped_sm90.default_config(problem, swap_ab=True, tile_m=24, stream_k=True)
    for rows in (ROWS, ROWS[::-1].copy()):
        assert_shares_a_tile(problem, config, rows, grouped_sm90.NUM_SMS)
        d = grouped_gemm(a, b, rows, d_dtype="f32", config=config, device="emulator")
        for group, count in enumerate(rows):
            assert np.array_equal(d[group, :count], product(a[group, :count], b[group]))


def test_contiguous_groups_with_block_scales_are_exact() -> None:
    a, b = integers((28, 256)), integers((4, 136, 256), 1)
    scale_a, scale_b = powers((28, 2)), powers((4, 2, 2))
    d = grouped_gemm(a, b, OFFSETS, mode="contiguous", scale_a=scale_a, scale_b=scale_b,
                     d_dtype="f32", device="emulator")  # fmt: skip
    want = np.zeros((28, 136))
    for group in range(4):
        rows = slice(OFFSETS[group], OFFSETS[group + 1])
        for block in range(2):
            k = slice(128 * block, 128 * block + 128)
            columns = np.repeat(scale_b[group, :, block], 128)[:136]
            scale = scale_a[rows, block][:, None] * columns[None, :]
            want[rows] += product(a[rows, k], b[group][:, k]) * scale
    assert np.array_equal(d, want)


def test_groups_of_k_are_added_to_out() -> None:
    a, b = integers((72, 400)), integers((64, 400), 1)
    offsets = np.asarray([0, 144, 144, 400], np.int32)
    out = np.ones((3, 72, 64), np.float32)
    grouped_gemm(a, b, offsets, mode="kgrouped", alignment=16, out=out, device="emulator")
    for group in range(3):
        k = slice(offsets[group], offsets[group + 1])
        assert np.array_equal(out[group], 1 + product(a[:, k], b[:, k]))


@pytest.mark.parametrize(
    ("starts", "alignment", "message"),
    [([0, 144, 400], 1, "try alignment=16"), ([0, 136, 400], 16, "got a start of 136")],
)
def test_parts_of_k_between_tma_units_are_refused(
    starts: list[int], alignment: int, message: str
) -> None:
    a, b = integers((72, 400)), integers((64, 400), 1)
    with pytest.raises((ArgumentError, ConfigError), match=message):
        grouped_gemm(
            a, b, np.asarray(starts, np.int32), mode="kgrouped", alignment=alignment,
            out=np.ones((2, 72, 64), np.float32), device="emulator",
        )  # fmt: skip


def test_batched_groups_with_scales_of_rows_and_columns_are_exact() -> None:
    a, b = integers((2, 20, 128)), integers((2, 48, 128), 1)
    scale_a, scale_b = powers((2, 20)), powers((2, 48))
    d = grouped_gemm(a, b, mode="batched", scale_a=scale_a, scale_b=scale_b, device="emulator")
    for group in range(2):
        scale = scale_a[group][:, None] * scale_b[group][None, :]
        assert np.array_equal(d[group].astype(float), bf16(product(a[group], b[group]) * scale))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sizes": None}, "sizes: must be given"),
        ({"sizes": np.asarray([1, 2], np.int32)}, "must have 4 integers"),
        ({"sizes": np.asarray([0, 1, 2, 3, 4], np.int32)}, "got 5; try counts: numpy.diff(sizes)"),
        ({"alpha": "x"}, "alpha: must be a real number"),
        ({"sizes": np.asarray([1, 2, 3, 4], np.float32)}, "int32 or int64"),
        ({"mode": "batched"}, "sizes: must not be given"),
        ({"mode": "contiguous"}, "a: must have 2 axes"),
        ({"b": np.zeros((3, 128, 256), E4M3)}, "a must have as many matrices as b, 3, got 4"),
        ({"b": np.zeros((4, 128, 128), E4M3)}, "K must agree"),
        ({"scale_a": np.ones((4, 24, 1), np.float32), "scale_b": np.ones((4, 1, 2), np.float32)},
         "scale_a: must have shape (4, 24, 2)"),
        ({"swap_ab": "yes"}, "swap_ab"),
        ({"out": np.zeros((4, 24, 100), np.float32)}, "out: shape must be"),
        ({"b": np.zeros((4, 128, 256), ml_dtypes.bfloat16)}, "bf16"),
        ({"sizes": np.asarray([3, 0, 2**32, 8])}, "sizes: must be from -2^31 to 2^31 - 1"),
        ({"out": as_strided(np.zeros(1000, "f4"), (4, 24, 128), (0, 160, 4))},
         "out: must not overlap itself, got strides of (0, 160, 4) bytes for shape (4, 24, 128)"),
        ({"scale_a": np.ones((4, 24, 2), "f4"), "scale_b": np.ones((), "f4")},
         "scale_b: must have shape (4, 1, 2)"),
        ({"mode": np.asarray([1, 2])}, "mode: must be one of masked"),
        ({"mode": np.asarray(["masked"])}, "mode: must be one of masked"),
        ({"index": np.asarray(["offsets"])}, "index must be one of offsets"),
        ({"accumulate": np.asarray(["fast"])}, "accumulate: must be one of auto"),
        ({"scale": np.asarray(["none"])}, "must be one of none, tensor"),
        ({"groups": np.asarray([1, 2])}, "groups: must be an integer from 1 to 512"),
        ({"groups": "4"}, "groups: must be an integer from 1 to 512, got '4'"),
        ({"expected_rows": "8"}, "expected_rows: must be an integer from 0 to 2147483647"),
        ({"alpha": 10**400}, "alpha: must be a real number"),
        ({"alignment": 2**31}, "alignment=2147483648 must be at least 1 and below 2^31"),
        ({"config": gemm_sm90.default_config(Gemm(8, 16, 128, "e4m3", "e4m3"))},
         "config: must be a Config of grouped_sm90, grouped_sm100 for grouped_gemm, got one of"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    arguments: dict[str, Any] = {
        "a": np.zeros((4, 24, 256), E4M3), "b": np.zeros((4, 128, 256), E4M3), "sizes": ROWS,
        "device": "emulator", **changes,
    }  # fmt: skip
    with pytest.raises((ArgumentError, ConfigError)) as error:
        grouped_gemm(**arguments)
    assert said in str(error.value)


DEVICE = EmulatorDevice()


def raw(start: int, shape: tuple[int, ...], dtype: str, strides: Any = None) -> RawArray:
    """An array that nothing reads, as it is refused, or another one is."""
    return RawArray((1 << 20) + start, shape, strides, dtype, DEVICE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"out": raw(1, (4, 24, 128), "bf16")}, "out: address 0x100001 must be a multiple of 2"),
        ({"sizes": raw(2, (4,), "s32")}, "sizes: address 0x100002 must be a multiple of 4 bytes"),
        ({"scale_a": raw(1, (4, 24, 2), "f32")}, "scale_a: address 0x100001 must be a multiple of"),
        ({"scale_a": raw(0, (4, 24, 2), "f32", (48, -2, 1))},
         "scale_a: strides must not be negative, and whole elements of 4 bytes, got -8 bytes"),
        ({"scale_a": raw(0, (4, 24, 2), "f32", (2, 1 << 30, 1))},
         "scale_a: strides of rows and blocks must be at most 4294967295 bytes, got 4294967296"),
        ({"scale": "tensor", "scale_a": raw(0, (), "f32"), "scale_b": raw(0, (4,), "f32", (0,))},
         "scale_b: must not be one element for all of (4,)"),
        ({"scale": "tensor", "scale_a": raw(0, (), "f32"), "scale_b": raw(0, (2, 2), "f32")},
         "scale_b: must have shape (4,)"),
        ({"b": RawArray(1 << 20, (4, 128, 256), None, "e4m3", EmulatorDevice())},
         "a is in the memory of emulator and b in that of another emulator device"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_device_memory_that_does_not_fit_is_refused_by_name(
    changes: dict[str, Any], said: str
) -> None:
    scales = {"scale_b": raw(0, (4, 1, 2), "f32")} if "scale_a" in changes else {}
    arguments: dict[str, Any] = {
        "a": raw(0, (4, 24, 256), "e4m3"), "b": raw(0, (4, 128, 256), "e4m3"),
        "sizes": raw(0, (4,), "s32"), "out": raw(1 << 20, (4, 24, 128), "bf16"), **scales,
        **changes,
    }  # fmt: skip
    with pytest.raises(ArgumentError) as error:
        grouped_gemm(**arguments)
    assert said in str(error.value)


@pytest.mark.parametrize("offsets", [[], [0]])
def test_parts_of_k_have_a_start_and_an_end(offsets: list[int]) -> None:
    with pytest.raises(ArgumentError, match="sizes: must have at least 2 offsets along K"):
        grouped_gemm(
            integers((8, 256)), integers((16, 256)), np.asarray(offsets, np.int32),
            mode="kgrouped", alignment=16, out=np.zeros((1, 8, 16), "f4"), device="emulator",
        )  # fmt: skip


@pytest.mark.parametrize(
    "scales",
    [
        (np.asarray(2, "f4"), np.asarray([1, 2, 4, 8], "f4")),
        (np.asarray([2], "f4"), np.asarray([[1, 2, 4, 8]], "f4")),
        (np.asarray([2], "f4"), np.asarray([8, 4, 2, 1], "f4")[::-1]),
    ],
    ids=["a number", "a row", "reversed"],
)
def test_scales_of_matrices_may_be_of_any_shape_and_stride(scales: tuple[Any, Any]) -> None:
    a, b = integers((4, 8, 128)), integers((4, 16, 128), 1)
    d = grouped_gemm(
        a, b, mode="batched", scale="tensor", scale_a=scales[0], scale_b=scales[1], d_dtype="f32",
        device="emulator",
    )  # fmt: skip
    for group in range(4):
        assert np.array_equal(d[group], product(a[group], b[group]) * 2 * 2**group)

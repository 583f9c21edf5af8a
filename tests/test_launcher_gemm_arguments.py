"""gemm refuses bad arguments by name, before it needs a driver or a device."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxgen.errors import ArgumentError, ToolMissingError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm100
from ptxgen.launcher import RawArray, gemm
from ptxgen.launcher import driver as driver_module
from ptxgen.launcher.arrays import as_operand
from ptxgen.launcher.gemm_arguments import read_matrix

BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3fn
M, N, K = 32, 48, 64
POINTER = 0x7F0000000000


def a(dtype: Any = BF16) -> Any:
    return np.zeros((M, K), dtype)


def b(dtype: Any = BF16) -> Any:
    return np.zeros((N, K), dtype)


def raw(start: int = 0, rows: int = M, stride: int = K, dtype: str = "bf16", **changes: Any) -> Any:
    return RawArray(POINTER + start, (rows, K), (stride, 1), dtype, **changes)


GROUPED = grouped_sm100.default_config(GroupedGemm("masked", 1, 8, 16, 128))
B_RAW = raw(1 << 20, N)
COLUMN_STEP = np.zeros((M, 2 * K), BF16)[:, ::2]
REVERSED = np.zeros((M, K), BF16)[::-1]
BROADCAST = np.broadcast_to(np.zeros((1, K), BF16), (M, K))
READ_ONLY = np.zeros((M, N), BF16)
READ_ONLY.flags.writeable = False
ONES_M, ONES_N = np.ones(M, np.float32), np.ones(N, np.float32)
BLOCKS_M = np.ones((M, 1), np.float32)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        # dtypes and shapes
        ((a(), b(np.float16)), {}, r"a=bf16, b=f16 must be bf16 with bf16"),
        ((a(E4M3), b()), {}, r"a=e4m3, b=bf16 must be"),
        ((a(np.uint8), b()), {}, r"a: dtype must be one of.*, got uint8.*view\(x, 'e4m3'\)"),
        ((a(np.float64), b()), {}, r"a: dtype must be one of.*, got float64"),
        ((a(), b()), {"d_dtype": "s32"}, "d of bf16 x bf16 must be one of bf16, f16, f32, "),
        ((a(ml_dtypes.float4_e2m1fn), b()), {}, "a: e2m1 has less than 8 bits"),
        ((a(), b()[:, 1:]), {}, r"K must agree: a is \[M,K\]=\(32, 64\) so K=64, b .* so K=63"),
        ((a()[0], b()), {}, r"a: must be a matrix \[M,K\], got shape \(64,\)"),
        ((a(), b()), {"layout": "row"}, "layout: must be one of nt, nn, tn, tt"),
        ((a(), b()), {"d_dtype": "e5m2"}, "d_dtype: must be one of bf16, f16, f32, s32, e4m3, got"),
        ((a(), b()), {"accumulate": "exact"}, "accumulate must be one of auto, fast, promoted"),
        ((a(">f2"), b(np.float16)), {}, r"a: byte order.*got >f2; try a.astype\('float16'\)"),
        ((a(), b()), {"out": np.zeros((M, N), ">f4")}, r"out: byte order"),
        ((a(), b()), {"out": np.zeros((M, N))}, r"out: dtype: must be one of bf16, f16, f32"),
        ((a(), b()), {"alpha": 1e39}, r"alpha=1e\+39 .* must be at most 3.4028235e\+38"),
        ((a(), b()), {"scale_a": 1e30, "scale_b": 1e30}, r"with scales that are numbers"),
        ((a(), b()), {"alpha": "1.x"}, "alpha: must be a real number"),
        ((a(), b()), {"scale_a": 10**400}, "scale_a: must be a real number"),
        ((a(), b()), {"layout": np.asarray(["nt"])}, "layout: must be one of nt"),
        ((a(), b()), {"config": GROUPED}, "config: must be a Config of gemm_sm90, .* grouped_sm90"),
        # strides and alignment
        ((COLUMN_STEP, b()), {}, r"a: the last axis of \[M,K\] must be contiguous.*\(128, 2\)"),
        ((a().T.copy().T, b()), {}, r"a: the last axis.*try passing a\.T with the other layout"),
        ((REVERSED, b()), {}, r"a: stride of axis 0 must be positive, got -64 elements"),
        ((BROADCAST, b()), {}, r"a: stride of axis 0 must not be 0"),
        ((raw(stride=K - 8), B_RAW), {}, r"a: rows overlap: row stride 56 elements"),
        ((raw(start=1), B_RAW), {}, r"a: address 0x7f0000000001 must be a multiple of 2 bytes"),
        # scales
        ((a(), b()), {"scale_a": ONES_M, "scale_b": ONES_M}, r"scale_b: must have N=48 elements"),
        ((a(), b()), {"scale_a": ONES_M}, r"scale_a is an array and scale_b is not"),
        ((a(), b()), {"scale_a": ONES_M.astype(BF16), "scale_b": ONES_N}, "must be f32 .*bf16"),
        ((a(), b()), {"scale_a": ONES_M.astype(">f4"), "scale_b": ONES_N}, "scale_a: byte order"),
        ((a(), b()), {"scale_a": np.ones(2 * M, np.float32)[::2], "scale_b": ONES_N},
         r"scale_a: must be contiguous, got a stride of 8 bytes"),
        ((a(), b()), {"scale_a": np.ones((4, 8), np.float32), "scale_b": ONES_N},
         r"scale_a of shape \(4, 8\) and scale_b of shape \(48,\) fit no kind of scale for M=32"),
        ((a(), b()), {"scale": "mx32"}, r"scale: must be one of none, tensor, rowcol, block"),
        ((a(), b()), {"scale": "block"}, r"scale=block takes an array each for scale_a"),
        ((a(), b()), {"scale": "none", "scale_a": ONES_M, "scale_b": ONES_N}, "takes no arrays"),
        ((a(), b()), {"scale": "tensor", "scale_a": ONES_M, "scale_b": ONES_N},
         r"scale_a: must have 1 element, got shape \(32,\)"),
        ((a(), b()), {"scale": "block", "scale_a": BLOCKS_M, "scale_b": BLOCKS_M},
         r"scale_b: must have shape \[ceil\(N/128\), ceil\(K/128\)\] = \(1, 1\) for scale=block"),
        ((a(), b()), {"scale": "group", "scale_a": BLOCKS_M.T, "scale_b": BLOCKS_M},
         r"scale_a: must have shape \[M, ceil\(K/128\)\] = \(32, 1\).*got \(1, 32\); try"),
        ((a(), b()), {"scale": "group", "scale_a": np.broadcast_to(np.float32(1), (M, 1)),
                      "scale_b": np.ones((N, 1), np.float32)},
         r"scale_a: stride of axis 0 must be a positive multiple of 4 bytes"),
        # out
        ((a(), b()), {"out": np.zeros((N, M), BF16)}, r"out: shape must be \(32, 48\)"),
        ((a(), b()), {"out": np.zeros((M, N), BF16), "d_dtype": "f32"}, r"out: dtype must be f32"),
        ((a(), b()), {"out": READ_ONLY}, r"out: must be writable"),
        ((a(), b()), {"out": np.zeros((N, M), BF16).T}, r"out: the last axis.*; try a new array"),
        ((raw(), B_RAW), {"out": RawArray(POINTER, (M, N), None, "bf16")}, r"out overlaps a:"),
        ((raw(), B_RAW), {"out": RawArray((1 << 20) + POINTER - 2, (M, N), None, "bf16")},
         r"out overlaps b:"),
        # places
        ((a(), B_RAW), {}, r"a is in host memory and b in the memory of GPU 0"),
        ((raw(), raw(1 << 20, N, device=1)), {}, r"memory of GPU 0 and b in the memory of GPU 1"),
        ((raw(), B_RAW), {"device": "emulator"}, r"memory of GPU 0, but device='emulator'"),
        ((a(), b()), {"device": "cuda"}, r"device: must be 'emulator', a GPU index, a Device"),
        ((a(), b()), {"stream": "0"}, r"stream must be None, an int handle"),
    ],
)  # fmt: skip
def test_a_bad_argument_is_refused_by_name(
    arguments: tuple[Any, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        gemm(*arguments, **options)


def test_a_single_row_needs_no_stride_that_suits_tma() -> None:
    x = RawArray(POINTER, (1, 511), None, "bf16")
    assert read_matrix(as_operand(x, "a"), "a", "[M,K]").stride == 512


def test_without_a_driver_host_arrays_are_told_of_the_emulator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def missing(name: str) -> None:
        raise pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    monkeypatch.setattr(driver_module, "_ready", {})
    with pytest.raises(ToolMissingError, match="device='emulator'"):
        gemm(a(), b())

"""gemm on the emulator and on a GPU: numpy arrays, pointers, and arrays of other libraries."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from other_gpu import OtherGpu

from ptxgen.kernels import gemm_mma, gemm_sm90, gemm_sm100, target_fields
from ptxgen.launch import Device
from ptxgen.launcher import DeviceArray, GpuDevice, RawArray, gemm, view
from ptxgen.launcher.gemm_call import Wanted, _emit
from ptxgen.operands import POISON, make_operands, poisoned
from ptxgen.problem import Gemm
from ptxgen.quantize import numpy_dtype
from ptxgen.selection import choose, model_of

PROBLEM = Gemm(70, 40, 72)


def expected(problem: Gemm, seed: int = 0) -> Any:
    """(operands, D): small integers, so D is exact whatever the order of the sums."""
    x = make_operands(problem, "integers", seed)
    d = problem.reference(x.a, x.b, x.scale_a, x.scale_b).astype(numpy_dtype(problem.d))
    return x, d


def same(got: Any, d: Any) -> bool:
    return got.dtype == d.dtype and np.array_equal(got.astype(np.float32), d.astype(np.float32))


@pytest.fixture(params=["emulator", pytest.param(0, marks=pytest.mark.gpu)])
def where(request: pytest.FixtureRequest) -> Any:
    """What `gemm(device=)` takes."""
    return request.param


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        replace(PROBLEM, layout="nn", d="f32"),
        replace(PROBLEM, layout="tn", a="f16", b="f16", d="f16"),
        replace(PROBLEM, layout="tt", alpha=0.5),
        replace(PROBLEM, a="e4m3", b="e5m2", accumulate="promoted", k=200),
        replace(PROBLEM, a="e4m3", b="e4m3", scale="rowcol", d="f32"),
        replace(PROBLEM, a="e5m2", b="e5m2", scale="tensor"),
        replace(PROBLEM, a="e4m3", b="e5m2", layout="tn"),
        Gemm(70, 136, 272, "e4m3", "e4m3", scale="block", accumulate="promoted"),
        Gemm(70, 136, 272, "e4m3", "e5m2", "f32", scale="group", accumulate="promoted"),
        replace(PROBLEM, m=1, n=1, k=1),
        replace(PROBLEM, k=63),
        replace(PROBLEM, k=0),
    ],
    ids=lambda p: f"{p.m}x{p.n}x{p.k}-{p.a}-{p.b}-{p.d}-{p.layout}-{p.scale}-{p.accumulate}",
)
def test_numpy_in_gives_numpy_out(where: Any, problem: Gemm) -> None:
    x, d = expected(problem)
    got = gemm(
        x.a, x.b, d_dtype=problem.d, layout=problem.layout, scale_a=x.scale_a, scale_b=x.scale_b,
        alpha=problem.alpha, accumulate=problem.accumulate, device=where,
    )  # fmt: skip
    assert same(got, d)


def test_numbers_as_scales_multiply_into_the_result(where: Any) -> None:
    x, d = expected(PROBLEM)
    assert same(gemm(x.a, x.b, scale_a=2.0, scale_b=0.25, device=where), d * d.dtype.type(0.5))


def test_views_of_bytes_are_multiplied_as_what_they_are_called(where: Any) -> None:
    x, d = expected(replace(PROBLEM, a="e4m3", b="e4m3"))
    a, b = (view(np.ascontiguousarray(y).view(np.uint8), "e4m3") for y in (x.a, x.b))
    assert same(gemm(a, b, device=where), d)


def test_an_output_view_keeps_the_gaps_between_its_rows(where: Any) -> None:
    x, d = expected(PROBLEM)
    storage = poisoned((PROBLEM.m, PROBLEM.n + 5), numpy_dtype("bf16"))
    out = storage[:, 2 : 2 + PROBLEM.n]
    assert gemm(x.a, x.b, out=out, device=where) is out
    assert same(out, d)
    gaps = storage.view(np.uint16)
    assert set(np.delete(gaps, np.s_[2 : 2 + PROBLEM.n], axis=1).ravel()) == {0xFFFF}


@pytest.mark.parametrize("scale", ["block", "group"])
def test_block_scales_of_any_strides_are_promoted_by_themselves(device: Device, scale: str) -> None:
    """MN-major scale matrices on the device, as DeepGEMM and cuBLASLt store them."""
    rows_b = 2 if scale == "block" else 136
    problem = Gemm(
        70, 136, 272, "e4m3", "e4m3", scale=scale, accumulate="promoted",
        scale_a_strides=(1, 72), scale_b_strides=(1, rows_b),
    )  # fmt: skip
    x, d = expected(problem)
    arrays = []
    for array in (x.a, x.b, x.scale_a, x.scale_b, np.zeros_like(d)):
        data = _bytes_from_first_to_last(array if array.strides[0] > 4 else array.T)
        pointer = device.alloc(len(data))
        device.write(pointer, data)
        strides = tuple(s // array.itemsize for s in array.strides)
        arrays.append(RawArray(pointer, array.shape, strides, str(array.dtype), device))
    a, b, scale_a, scale_b, out = arrays
    gemm(a, b, scale_a=scale_a, scale_b=scale_b, out=out)
    written = device.read(out.pointer, d.nbytes)
    for array in arrays:
        device.free(array.pointer)
    assert written == d.tobytes()


@pytest.mark.parametrize(("m", "n"), [(0, 40), (70, 0), (0, 0)])
def test_an_empty_output_needs_no_launch(where: Any, m: int, n: int) -> None:
    a, b = np.zeros((m, 72), numpy_dtype("bf16")), np.zeros((n, 72), numpy_dtype("bf16"))
    assert gemm(a, b, device=where).shape == (m, n)


@pytest.mark.parametrize(
    ("a_stride", "b_stride", "d_stride", "guard"),
    [(80, 88, 40, 512), (80, 88, 48, 512), (80, 88, 41, 512), (73, 88, 40, 512), (80, 88, 40, 514)],
)
def test_raw_pointers_inside_allocations_with_padded_rows(
    device: Device, a_stride: int, b_stride: int, d_stride: int, guard: int
) -> None:
    """K = 72, N = 40. TMA cannot store D at a stride of 41 elements, nor load A at one of 73, nor
    either at an address that is no multiple of 16."""
    problem = replace(PROBLEM, a_stride=a_stride, b_stride=b_stride, d_stride=d_stride)
    x, d = expected(problem)
    sizes = {name: problem.extent_bytes(name) + 2 * guard for name in ("a", "b", "d")}
    bases = {name: device.alloc(size) for name, size in sizes.items()}
    for name, array in (("a", x.a), ("b", x.b)):
        image = bytearray([POISON]) * sizes[name]
        image[guard:-guard] = _bytes_from_first_to_last(array)
        device.write(bases[name], bytes(image))
    device.write(bases["d"], bytes([POISON]) * sizes["d"])
    raw = {
        name: RawArray(bases[name] + guard, shape, (problem.stride(name), 1), "bf16", device)
        for name, shape in (("a", problem.a_shape), ("b", problem.b_shape), ("d", problem.d_shape))
    }
    gemm(raw["a"], raw["b"], out=raw["d"])
    written = device.read(bases["d"], sizes["d"])
    for base in bases.values():
        device.free(base)
    want = poisoned((problem.m, d_stride), numpy_dtype("bf16"))
    want[:, : problem.n] = d
    assert written[:guard] == written[-guard:] == bytes([POISON]) * guard
    assert written[guard:-guard] == want.tobytes()[: sizes["d"] - 2 * guard]


def _bytes_from_first_to_last(array: Any) -> bytes:
    """Bytes that a strided matrix spans, its gaps included."""
    rows = np.lib.stride_tricks.as_strided(
        array.view(np.uint8), (array.shape[0], array.strides[0]), (array.strides[0], 1)
    )
    last = array.shape[1] * array.itemsize
    return bytes(rows[:-1].tobytes() + array[-1:].tobytes()[:last])


@pytest.mark.gpu
@pytest.mark.parametrize("interface", ["cuda_array_interface", "dlpack"])
def test_device_arrays_of_other_libraries(interface: str) -> None:
    gpu = GpuDevice.get()
    x, d = expected(PROBLEM)
    arrays = []
    for y in (x.a, x.b):
        array = DeviceArray(gpu, y.shape, "bf16")
        gpu.write(array.pointer, np.ascontiguousarray(y).tobytes())
        arrays.append(_Foreign(array, interface))
    got = gemm(*arrays)
    assert isinstance(got, DeviceArray)
    assert same(got.to_numpy(), d)


class _Foreign:
    """A DeviceArray behind one of its two interfaces, as another library would have it."""

    def __init__(self, array: DeviceArray, interface: str) -> None:
        self.array = array
        if interface == "dlpack":
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__
        else:
            self.__cuda_array_interface__ = array.__cuda_array_interface__
            self.dtype = array.dtype


@pytest.mark.gpu
def test_the_second_call_of_a_problem_loads_nothing() -> None:
    gpu = GpuDevice.get()
    x, d = expected(PROBLEM)
    gemm(x.a, x.b)
    loaded = len(gpu.modules)
    x, d = expected(PROBLEM, seed=1)
    assert same(gemm(x.a, x.b), d)
    assert len(gpu.modules) == loaded


@pytest.mark.parametrize(
    ("name", "arch", "num_sms"),
    [("NVIDIA H200", "sm_90a", 132), ("NVIDIA H200 MIG 1g.18gb", "sm_90a", 16)],
)
def test_a_known_gpu_gets_the_config_that_selection_chooses(
    name: str, arch: str, num_sms: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PTXGEN_TUNING_TABLE", str(tmp_path / "none"))
    problem = Gemm(2048, 1024, 512, "e4m3", "e4m3")
    _, launch = _emit(Wanted(problem), OtherGpu(name, arch, num_sms))
    assert launch.entry == str(choose(problem, model_of(name, num_sms)))
    assert launch.grid_ctas[0] <= num_sms


@pytest.mark.parametrize(
    ("arch", "kernel"), [("sm_90a", gemm_sm90), ("sm_100a", gemm_sm100), ("sm_89", gemm_mma)]
)
def test_an_unknown_gpu_gets_the_default_config(arch: str, kernel: Any) -> None:
    rendered, launch = _emit(Wanted(PROBLEM), OtherGpu("NVIDIA Something", arch, 20))
    fields = target_fields(kernel, arch)
    assert launch.entry == str(kernel.default_config(PROBLEM, **fields))
    assert f".target {arch}" in rendered.text

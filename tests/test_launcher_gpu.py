"""What only a GPU can show: the driver's answers, threads, streams, graphs, faults."""

import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxgen.errors import AssemblyError, DriverError, LaunchError
from ptxgen.launch import Buffer, Launch, Param, TensorMap
from ptxgen.launcher import DeviceArray, GpuDevice, PreparedCall
from ptxgen.launcher import module as module_file
from ptxgen.launcher.arrays import as_operand
from ptxgen.launcher.module_cache import MODULE_LIMIT
from ptxgen.launcher.tensor_maps import encode_tensor_map
from ptxgen.launcher.timing import captured, new_stream, time_graph

pytestmark = pytest.mark.gpu
KernelText = Callable[[str], str]
CLUSTER = Launch(
    "cluster", (4, 1, 1), (1, 1, 1), params=(Param("out", "pointer", "out"),),
    buffers=(Buffer("out", 64),),
)  # fmt: skip
MAP = TensorMap("x", element_type="bfloat16", dims=(64, 16), strides_bytes=(128,), box=(64, 16))
COPY = Launch(
    "tma_copy", (1, 1, 1), (128, 1, 1), dynamic_smem_bytes=2048,
    params=(
        Param("map", "tensor_map", MAP), Param("out", "pointer", "out"),
        Param("x", "u32", 0), Param("y", "u32", 0),
    ),
    buffers=(Buffer("x", 2048), Buffer("out", 2048)),
)  # fmt: skip


@pytest.fixture
def gpu() -> GpuDevice:
    return GpuDevice.get()


def test_the_jit_log_tells_the_registers(gpu: GpuDevice, kernel_text: KernelText) -> None:
    with gpu.modules.loaded(kernel_text("cluster") + "// for this test\n") as module:
        usage = module.jit_log.kernels["cluster"]
        with gpu.current():
            assert usage.registers == module.kernel("cluster").registers > 0
        assert module.jit_log.spill_bytes == 0


def test_a_syntax_error_names_the_line(gpu: GpuDevice, kernel_text: KernelText) -> None:
    text = kernel_text("cluster").replace("mul.wide.u32", "mul.wild.u32")
    line = 1 + text[: text.index("mul.wild")].count("\n")
    with pytest.raises(AssemblyError, match=f"PTX line {line}") as error:
        gpu.modules.acquire(text)
    assert error.value.line == line


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (".version 8.0", ".version 9.9", r"\.version 9\.9 but the driver"),
        ("sm_90a", "sm_80", "the driver's PTX compiler rejected the text"),
    ],
)
def test_the_driver_itself_refuses_what_we_refuse_before_it(
    gpu: GpuDevice,
    kernel_text: KernelText,
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    words: str,
) -> None:
    """cluster registers need sm_90; the newest version is the driver's to know."""
    monkeypatch.setattr(module_file, "max_ptx_version", lambda version: None)
    with pytest.raises(AssemblyError, match=words):
        gpu.modules.acquire(kernel_text("cluster").replace(old, new))


def test_an_unknown_entry_is_told_the_names(gpu: GpuDevice, kernel_text: KernelText) -> None:
    with pytest.raises(LaunchError, match="no entry 'nope'; there are cluster"):
        PreparedCall(gpu, replace(CLUSTER, entry="nope"), kernel_text("cluster"))


def test_parameters_of_another_number_are_refused(gpu: GpuDevice, kernel_text: KernelText) -> None:
    with pytest.raises(LaunchError, match=r"declares parameters of \[8\] bytes"):
        PreparedCall(gpu, replace(CLUSTER, params=()), kernel_text("cluster"))


def test_a_cubin_is_loaded_like_text(gpu: GpuDevice, kernel_text: KernelText) -> None:
    from ptxgen.assembler import assemble

    cubin = assemble(kernel_text("cluster"), "sm_90a").code
    out = gpu.alloc(64)
    gpu.launch(CLUSTER, cubin, {"out": out})
    assert np.frombuffer(gpu.read(out, 64), np.uint32)[[0, 1, 2]].tolist() == [0, 1, 4]
    gpu.free(out)


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize(("element_type", "size"), [("uint8", 1), ("bfloat16", 2), ("float32", 4)])
def test_the_driver_encodes_a_map_as_the_emulator_does(
    gpu: GpuDevice, element_type: str, size: int, swizzle: str
) -> None:
    from ptxgen.emulator.tensor_map import encode_launch_map

    box = (32 // size, 24)
    tensor_map = TensorMap(
        "x", offset_bytes=32, element_type=element_type, dims=(100, 300, 7),
        strides_bytes=(1024, 1 << 20), box=(*box, 2), swizzle=swizzle, l2_promotion="256B",
    )  # fmt: skip
    with gpu.current():
        assert encode_tensor_map(tensor_map, 0x7F00_1234_5600) == encode_launch_map(
            tensor_map, 0x7F00_1234_5600
        )


def test_a_moved_buffer_is_read_through_a_new_map(gpu: GpuDevice, kernel_text: KernelText) -> None:
    call = PreparedCall(gpu, COPY, kernel_text("tma_copy"))
    out, sources = gpu.alloc(2048), [gpu.alloc(2048) for _ in range(3)]
    for value, source in enumerate(sources):
        gpu.fill(source, 2048, value)
        call((source, out))
        assert gpu.read(out, 2048) == bytes([value]) * 2048
    for address in (out, *sources):
        gpu.free(address)


def test_threads_without_a_context_launch_side_by_side(
    gpu: GpuDevice, kernel_text: KernelText
) -> None:
    call = PreparedCall(gpu, COPY, kernel_text("tma_copy"))
    wrong: list[int] = []

    def work(value: int) -> None:
        source, out = gpu.alloc(2048), gpu.alloc(2048)
        gpu.fill(source, 2048, value)
        for _ in range(50):
            gpu.fill(out, 2048)
            call((source, out))
            if gpu.read(out, 2048) != bytes([value]) * 2048:
                wrong.append(value)
        gpu.free(source)
        gpu.free(out)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_graph_replays_after_its_python_objects_are_gone(
    gpu: GpuDevice, kernel_text: KernelText
) -> None:
    """The module stays loaded by the cache; parameters and tensor maps live in the graph."""
    source, out = gpu.alloc(2048), gpu.alloc(2048)
    gpu.fill(source, 2048, 7)
    call = PreparedCall(gpu, COPY, kernel_text("tma_copy"))
    with new_stream(gpu) as stream:
        with captured(gpu, stream) as graph:
            call((source, out), stream)
        del call
        gc.collect()
        junk = [bytearray(4096) for _ in range(1000)]
        for _ in range(2):
            gpu.fill(out, 2048)
            gpu.synchronize()
            graph.launch(stream)
            assert gpu.read(out, 2048) == b"\7" * 2048
        graph.destroy()
    assert len(junk) == 1000
    gpu.free(source)
    gpu.free(out)


def test_a_stream_waits_for_the_stream_that_it_is_ordered_after(
    gpu: GpuDevice, kernel_text: KernelText
) -> None:
    """The producer fills 1 GiB twenty times, which takes milliseconds; the last value counts."""
    nbytes = 1 << 30
    source, out = gpu.alloc(nbytes), gpu.alloc(2048)
    call = PreparedCall(gpu, COPY, kernel_text("tma_copy"))
    driver = gpu.driver
    with new_stream(gpu) as producer, new_stream(gpu) as ours:
        call((source, out), ours)
        gpu.synchronize()
        with gpu.current():
            for value in range(20):
                driver.cuMemsetD8Async(source, value, nbytes, producer)
        gpu.order_after(ours, producer)
        call((source, out), ours)
        assert gpu.read(out, 2048) == bytes([19]) * 2048
    gpu.free(source)
    gpu.free(out)


def test_loading_many_texts_keeps_the_cache_bounded(
    gpu: GpuDevice, kernel_text: KernelText
) -> None:
    text, out = kernel_text("cluster"), gpu.alloc(64)
    for i in range(MODULE_LIMIT + 40):
        gpu.launch(CLUSTER, f"{text}// variant {i}\n", {"out": out})
    assert len(gpu.modules) <= MODULE_LIMIT
    gpu.free(out)


def test_a_device_array_goes_out_by_dlpack_and_comes_back(gpu: GpuDevice) -> None:
    x = DeviceArray(gpu, (3, 5), "bf16")
    gpu.fill(x.pointer, x.nbytes, 0)
    for exported in (x, _DlpackOnly(x)):
        operand = as_operand(exported, "a")
        assert (operand.pointer, operand.shape, operand.device_index) == (x.pointer, (3, 5), 0)
    assert operand.dtype == "bf16"
    assert x.to_numpy().astype(np.float32).tolist() == [[0.0] * 5] * 3


class _DlpackOnly:
    def __init__(self, x: DeviceArray) -> None:
        self.__dlpack__, self.__dlpack_device__ = x.__dlpack__, x.__dlpack_device__


def test_a_graph_launch_is_timed_without_host_overhead(
    gpu: GpuDevice, kernel_text: KernelText
) -> None:
    call = PreparedCall(gpu, COPY, kernel_text("tma_copy"))
    source, out = gpu.alloc(2048), gpu.alloc(2048)
    timing = time_graph(gpu, lambda stream: call((source, out), stream), repeats=5)
    assert 0.2e-6 < timing.median < 100e-6
    gpu.free(source)
    gpu.free(out)


def test_an_unknown_gpu_is_named() -> None:
    with pytest.raises(DriverError, match="GPU 99"):
        GpuDevice.get(99)


def in_a_process(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` where it can hurt nobody; faults end a context."""
    root = Path(__file__).parent.parent
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120,
        cwd=root, check=False,
    )  # fmt: skip


PRELUDE = """
from pathlib import Path
from ptxgen.errors import DriverError
from ptxgen.launch import Buffer, Launch, Param
from ptxgen.launcher import GpuDevice
gpu = GpuDevice.get()
text = Path('tests/kernels/cluster.ptx').read_text()
launch = Launch('cluster', (4, 1, 1), (1, 1, 1), params=(Param('out', 'pointer', 'out'),),
                buffers=(Buffer('out', 64),))
"""


def test_a_fault_names_its_code_and_the_launch() -> None:
    done = in_a_process(
        PRELUDE + "out = gpu.alloc(64)\n"
        "gpu.launch(launch, text, {'out': 0x10})\n"
        "try: gpu.read(out, 64)\n"
        "except DriverError as error: print(error)\n"
        "gpu.free(out)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in done.stdout
    assert "the last launch was cluster: grid_ctas=(4, 1, 1)" in done.stdout
    assert "start a new process" in done.stdout


def test_a_forked_child_is_told_to_spawn() -> None:
    done = in_a_process(
        PRELUDE + "import os\n"
        "if os.fork() == 0:\n"
        "    try: GpuDevice.get()\n"
        "    except DriverError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    assert "'spawn'" in done.stdout, done.stderr


def test_without_a_visible_device_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = in_a_process("from ptxgen.launcher import GpuDevice\nGpuDevice.get()\n")
    assert "ToolMissingError" in done.stderr
    assert "CUDA_VISIBLE_DEVICES=''" in done.stderr

"""The driver: missing, forked, failing; and what its codes mean."""

import os
import subprocess
import sys
from typing import Any

import pytest

from ptxgen.errors import DriverError, ToolMissingError
from ptxgen.launcher import driver as driver_module
from ptxgen.launcher.driver import driver_error, load_driver, max_ptx_version
from ptxgen.launcher.properties import arch_of
from ptxgen.launcher.streams import stream_handle

bindings = pytest.importorskip("cuda.bindings.driver")


def test_without_a_driver_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import cuda.pathfinder

    def missing(name: str) -> None:
        raise cuda.pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(cuda.pathfinder, "load_nvidia_dynamic_lib", missing)
    monkeypatch.setattr(driver_module, "_ready", {})
    with pytest.raises(ToolMissingError, match=r"no NVIDIA driver.*device='emulator'"):
        load_driver()


def test_a_forked_process_is_told_to_spawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_ready", {os.getpid() + 1: bindings})
    with pytest.raises(DriverError, match=r"fork.*'spawn'"):
        load_driver()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "CUDA_ERROR_INVALID_VALUE (1)"),
        (209, "emit for this device's arch"),
        (218, "the JIT log names the lines"),
        (222, "lower .version"),
        (700, "a buffer smaller than the tensor map"),
        (715, "multiple of 16 bytes"),
        (716, "multiple of 128 bytes"),
        (719, "a bad matrix descriptor"),
    ],
)
def test_a_code_comes_with_its_usual_cause(code: int, words: str) -> None:
    message = str(driver_error(bindings, "cuLaunchKernelEx", code, "grid_ctas=(1, 1, 1)"))
    assert message.startswith("cuLaunchKernelEx failed: CUDA_ERROR_")
    assert f"({code}); grid_ctas=(1, 1, 1)" in message
    assert words in message


def test_a_fault_says_that_the_context_is_lost() -> None:
    assert "start a new process" in str(driver_error(bindings, "cuCtxSynchronize", 700))
    assert "start a new process" not in str(driver_error(bindings, "cuMemAlloc", 2))


def test_a_code_that_the_bindings_do_not_know_is_still_reported() -> None:
    assert "(31337)" in str(driver_error(bindings, "cuInit", 31337))


@pytest.mark.parametrize(
    ("driver", "ptx"),
    [
        ((12, 0), (8, 0)), ((12, 4), (8, 4)), ((12, 6), (8, 5)), ((12, 8), (8, 7)),
        ((12, 9), (8, 8)), ((13, 0), (9, 0)), ((13, 3), (9, 3)),
    ],
)  # fmt: skip
def test_the_newest_ptx_follows_from_the_driver_version(
    driver: tuple[int, int], ptx: tuple[int, int]
) -> None:
    assert max_ptx_version(driver) == ptx


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((10, 3), "sm_103a"), ((12, 0), "sm_120a"),
     ((8, 9), "sm_89"), ((12, 1), "sm_121")],
)  # fmt: skip
def test_the_target_follows_from_the_capability(capability: tuple[int, int], arch: str) -> None:
    assert arch_of(capability) == arch


class Protocol:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        return self.answer


class CupyLike:
    ptr = 0x77


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (0, 0),
        (1, 1),
        (2, 2),
        (0x5500, 0x5500),
        (Protocol((0, 9)), 9),
        (CupyLike(), 0x77),
    ],
)
def test_streams_of_every_kind_become_handles(stream: Any, handle: int) -> None:
    assert stream_handle(stream) == handle


@pytest.mark.parametrize("stream", [True, -1, 1 << 64, "0", Protocol((1, 9)), Protocol(9), 1.0])
def test_what_is_no_stream_is_refused(stream: Any) -> None:
    from ptxgen.errors import ArgumentError

    with pytest.raises(ArgumentError, match="stream"):
        stream_handle(stream)


def test_importing_the_launcher_and_its_call_loads_no_cuda() -> None:
    code = (
        "import sys, ptxgen.launcher\n"
        "from ptxgen.launcher import DeviceArray, GpuDevice, PreparedCall, RawArray, gemm, view\n"
        "print([m for m in sys.modules if m.split('.')[0] == 'cuda'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Workspaces of captures and of lost contexts, with a driver that only counts and fails."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ptxgen.errors import DriverError
from ptxgen.launcher import driver as driver_module
from ptxgen.launcher import workspaces
from ptxgen.launcher.workspaces import Workspaces

bindings = pytest.importorskip("cuda.bindings.driver")
LOST = 700
"""CUDA_ERROR_ILLEGAL_ADDRESS, which every later call returns, too."""
UNKNOWN = 999


class Driver:
    """The calls that workspaces make. Streams are captured as `captures` says."""

    def __init__(self) -> None:
        self.captures: dict[int, int] = {}
        self.keepers: list[int] = []
        """Semaphores to be posted when a graph is gone."""
        self.mode_code = 0

    def __getattr__(self, name: str) -> Any:
        """Enumerations are those of cuda-bindings; other calls succeed with a handle."""
        if name.startswith("CU"):
            return getattr(bindings, name)
        return lambda *_: (0, 1)

    def cuStreamIsCapturing(self, stream: int) -> tuple[int, Any]:  # noqa: N802
        status = bindings.CUstreamCaptureStatus
        active = status.CU_STREAM_CAPTURE_STATUS_ACTIVE
        return 0, active if stream in self.captures else status.CU_STREAM_CAPTURE_STATUS_NONE

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:  # noqa: N802
        return 0, 1, self.captures[stream], "graph"

    def cuThreadExchangeStreamCaptureMode(self, _mode: Any) -> tuple[int, Any]:  # noqa: N802
        return self.mode_code, bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL

    def cuUserObjectCreate(self, address: int, *_: Any) -> tuple[int, int]:  # noqa: N802
        self.keepers.append(address)
        return 0, 1

    def cuMemsetD8Async(self, *_: Any) -> tuple[int]:  # noqa: N802
        return (0,)


class Gpu:
    """As much of a GpuDevice as workspaces need."""

    name = "a driver that counts"

    def __init__(self) -> None:
        self.driver = Driver()
        self.allocated = 0
        self.freed: list[int] = []
        self.frees = True

    @contextmanager
    def current(self) -> Iterator[None]:
        yield

    def alloc(self, _nbytes: int) -> int:
        self.allocated += 1
        return self.allocated << 20

    def free(self, address: int) -> None:
        if not self.frees:
            raise DriverError("cuMemFree failed")
        self.freed.append(address)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(driver_module, "_ready", {os.getpid(): bindings})
    monkeypatch.setattr(workspaces, "_of_graphs", [])
    return Gpu()


def test_captures_that_take_turns_keep_their_workspaces(gpu: Any) -> None:
    kept = Workspaces(gpu, [1000, 10])
    gpu.driver.captures = {10: 1, 11: 2}
    turns = [(kept.at(10), kept.at(11)) for _ in range(5)]
    assert gpu.allocated == 2
    assert len(set(turns)) == 1


def test_only_the_last_captures_are_kept(gpu: Any) -> None:
    kept = Workspaces(gpu, [1000])
    for capture in range(workspaces.MOST_CAPTURED + 3):
        gpu.driver.captures = {10: capture}
        kept.at(10)
    assert len(kept._of_captures) == workspaces.MOST_CAPTURED


def test_a_graph_of_a_lost_device_fails_no_other_call(gpu: Any) -> None:
    other: Any = Gpu()
    other.driver.captures = {10: 1}
    Workspaces(other, [1000]).at(10)
    other.frees = False
    for semaphore in other.driver.keepers:
        ctypes.CDLL(None).sem_post(ctypes.c_void_p(semaphore))
    assert Workspaces(gpu, [1000]).at(10) == (1 << 20,)
    assert workspaces._of_graphs == []


def test_workspaces_of_a_lost_context_are_given_up_in_silence(gpu: Any) -> None:
    kept = Workspaces(gpu, [1000])
    kept.at(10)
    gpu.driver.mode_code = LOST
    workspaces._free_all(gpu, kept._of_streams)
    assert gpu.freed == [1 << 20]


def test_another_failure_to_leave_a_capture_is_told(gpu: Any) -> None:
    kept = Workspaces(gpu, [1000])
    kept.at(10)
    gpu.driver.mode_code = UNKNOWN
    with pytest.raises(DriverError, match="cuThreadExchangeStreamCaptureMode failed"):
        workspaces._free_all(gpu, kept._of_streams)
    gpu.driver.mode_code = 0

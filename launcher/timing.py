"""Timing on the device: events around launches, graph replay, and operands that leave the L2."""

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ptxgen.errors import DriverError
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.driver import check


@dataclass(frozen=True)
class Timing:
    """Times of repeated runs, in seconds per call."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples)

    @property
    def best(self) -> float:
        """The fastest sample."""
        return min(self.samples)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.samples) - self.best) / self.median


@contextmanager
def new_stream(device: GpuDevice) -> Iterator[int]:
    """Handle of a stream that does not wait for the legacy default stream; destroyed at the end."""
    driver = device.driver
    with device.current():
        flags = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        stream = check("cuStreamCreate", driver.cuStreamCreate(flags))
    try:
        yield int(stream)
    finally:
        with device.current():
            driver.cuStreamDestroy(stream)


def time_calls(
    device: GpuDevice,
    call: Callable[[int], None],
    *,
    stream: int = 0,
    repeats: int = 20,
    calls_per_repeat: int = 1,
    warmup: int = 3,
) -> Timing:
    """Time `call(stream)` with events on `stream`; one sample per repeat, per call.

    Short kernels need `calls_per_repeat` > 1, or the time between two launches is measured too.

    Raises: DriverError.
    """
    driver = device.driver
    for _ in range(warmup):
        call(stream)
    samples = []
    with device.current(), _events(device) as (start, end):
        for _ in range(repeats):
            check("cuEventRecord", driver.cuEventRecord(start, stream))
            for _ in range(calls_per_repeat):
                call(stream)
            check("cuEventRecord", driver.cuEventRecord(end, stream))
            check("cuEventSynchronize", driver.cuEventSynchronize(end))
            milliseconds = check("cuEventElapsedTime", driver.cuEventElapsedTime(start, end))
            samples.append(float(milliseconds) / 1000 / calls_per_repeat)
    return Timing(tuple(samples))


def time_graph(
    device: GpuDevice,
    call: Callable[[int], None],
    *,
    calls_per_graph: int = 20,
    repeats: int = 20,
    warmup: int = 3,
) -> Timing:
    """Time `call(stream)` captured `calls_per_graph` times into a CUDA graph: no host overhead.

    Raises: DriverError.
    """
    driver = device.driver
    with new_stream(device) as stream, device.current():
        call(stream)  # loads and checks whatever must not happen during capture
        check("cuStreamSynchronize", driver.cuStreamSynchronize(stream))
        with captured(device, stream) as graph:
            for _ in range(calls_per_graph):
                call(stream)
        try:
            replayed = time_calls(
                device, graph.launch, stream=stream, repeats=repeats, warmup=warmup
            )
        finally:
            graph.destroy()
    return Timing(tuple(sample / calls_per_graph for sample in replayed.samples))


class Graph:
    """A captured graph, ready to be launched as one."""

    def __init__(self, device: GpuDevice) -> None:
        self._device = device
        self._executable: Any = None

    def finish(self, graph: Any) -> None:
        """Take the captured `graph` (CUgraph)."""
        driver = self._device.driver
        self._executable = check("cuGraphInstantiate", driver.cuGraphInstantiate(graph, 0))
        check("cuGraphDestroy", driver.cuGraphDestroy(graph))

    def launch(self, stream: int) -> None:
        """Launch all captured work on `stream`."""
        driver = self._device.driver
        with self._device.current():
            check("cuGraphLaunch", driver.cuGraphLaunch(self._executable, stream))

    def destroy(self) -> None:
        """Free the graph; no launch of it may be running."""
        driver = self._device.driver
        with self._device.current():
            check("cuGraphExecDestroy", driver.cuGraphExecDestroy(self._executable))


@contextmanager
def captured(device: GpuDevice, stream: int) -> Iterator[Graph]:
    """Capture what the `with` block issues on `stream` (not the default stream) into a Graph.

    Raises: DriverError, also when the block did something that cannot be captured.
    """
    driver = device.driver
    graph = Graph(device)
    with device.current():
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        check("cuStreamBeginCapture", driver.cuStreamBeginCapture(stream, mode))
        try:
            yield graph
        except BaseException:
            driver.cuStreamEndCapture(stream)  # leave capture; the block's error is the news
            raise
        graph.finish(check("cuStreamEndCapture", driver.cuStreamEndCapture(stream)))


class OperandRotation:
    """Copies of a launch's buffers, used in turn so that no call finds its operands in L2.

    Enough copies are made that all others, which pass before one returns, exceed twice the L2.
    """

    def __init__(self, device: GpuDevice, nbytes: Mapping[str, int]) -> None:
        """`nbytes`: size of each buffer by name.

        Raises: DriverError, e.g. for want of memory.
        """
        self._device = device
        sizes = {name: size + -size % 256 for name, size in nbytes.items()}
        self.count = rotation_count(sum(sizes.values()), device.properties.l2_bytes)
        self._allocations: list[int] = []
        starts: dict[str, int] = {}
        try:
            for name, size in sizes.items():
                starts[name] = device.alloc(size * self.count)
                self._allocations.append(starts[name])
        except DriverError:
            self.free()
            raise
        self.copies = [
            {name: starts[name] + index * size for name, size in sizes.items()}
            for index in range(self.count)
        ]
        """Address of each buffer, copy by copy."""
        self._next = 0

    def next(self) -> dict[str, int]:
        """The copy whose last use is longest ago."""
        copy = self.copies[self._next]
        self._next = (self._next + 1) % self.count
        return copy

    def free(self) -> None:
        """Give all copies back."""
        while self._allocations:
            self._device.free(self._allocations.pop())


def rotation_count(nbytes: int, l2_bytes: int) -> int:
    """Copies of operands of `nbytes` bytes that an L2 of `l2_bytes` bytes cannot keep."""
    return 1 + -(-2 * l2_bytes // max(nbytes, 1))


@contextmanager
def _events(device: GpuDevice) -> Iterator[tuple[Any, Any]]:
    driver = device.driver
    start = check("cuEventCreate", driver.cuEventCreate(0))
    end = check("cuEventCreate", driver.cuEventCreate(0))
    try:
        yield start, end
    finally:
        driver.cuEventDestroy(start)
        driver.cuEventDestroy(end)

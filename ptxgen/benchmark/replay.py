"""replay: kernel calls captured into a CUDA graph, and a stopwatch on the GPU's own clock."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ptxgen.benchmark.method import Contender
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.driver import check
from ptxgen.launcher.timing import captured, new_stream

GRAPH_S = 1e-3
"""A graph runs at least this long, so that launching it costs nothing beside it."""
MAX_CALLS = 1024
"""Kernel calls of one graph, at most."""


class Stopwatch:
    """A stream of its own, and events on it."""

    def __init__(self, device: GpuDevice, stream: int) -> None:
        self.device = device
        self.stream = stream
        """Handle of the stream that everything timed runs on."""
        with device.current():
            self._start = check("cuEventCreate", device.driver.cuEventCreate(0))
            self._end = check("cuEventCreate", device.driver.cuEventCreate(0))

    def timed(self, issue: Callable[[], None], lead: int, count: int) -> float:
        """Seconds of `count` times `issue`, which puts work on the stream, after `lead` more.

        Raises: DriverError, also for a fault of a kernel.
        """
        driver = self.device.driver
        with self.device.current():
            for _ in range(lead):
                issue()
            check("cuEventRecord", driver.cuEventRecord(self._start, self.stream))
            for _ in range(count):
                issue()
            check("cuEventRecord", driver.cuEventRecord(self._end, self.stream))
            check("cuEventSynchronize", driver.cuEventSynchronize(self._end))
            elapsed = driver.cuEventElapsedTime(self._start, self._end)
            return float(check("cuEventElapsedTime", elapsed)) / 1000

    def close(self) -> None:
        """Destroy the events."""
        with self.device.current():
            self.device.driver.cuEventDestroy(self._start)
            self.device.driver.cuEventDestroy(self._end)


@contextmanager
def stopwatch(device: GpuDevice) -> Iterator[Stopwatch]:
    """A stopwatch on a new stream."""
    with new_stream(device) as stream:
        watch = Stopwatch(device, stream)
        try:
            yield watch
        finally:
            watch.close()


def calls_per_graph(num_copies: int, seconds_per_call: float) -> int:
    """Calls of one graph: whole rounds of the copies, so that the next replay goes on with them."""
    rounds = math.ceil(GRAPH_S / max(seconds_per_call * num_copies, 1e-9))
    return num_copies * max(1, min(rounds, MAX_CALLS // num_copies))


def graph_contender(
    name: str,
    watch: Stopwatch,
    call: Callable[[Mapping[str, int], int], None],
    copies: Sequence[Mapping[str, int]],
) -> Contender:
    """A contender that replays `call(addresses, stream)` over the copies of its operands.

    Raises: as `call`; DriverError.
    """

    def all_copies() -> None:
        for copy in copies:
            call(copy, watch.stream)

    watch.timed(all_copies, 1, 1)
    seconds = watch.timed(all_copies, 0, 1) / len(copies)
    calls = calls_per_graph(len(copies), seconds)
    with captured(watch.device, watch.stream) as graph:
        for index in range(calls):
            call(copies[index % len(copies)], watch.stream)

    def replay(lead: int, count: int) -> float:
        return watch.timed(lambda: graph.launch(watch.stream), lead, count)

    return Contender(name, calls, replay, graph.destroy, holds=call)


def launch_contender(
    name: str,
    watch: Stopwatch,
    launch: Any,
    image: str | bytes,
    copies: Sequence[Mapping[str, int]],
) -> Contender:
    """A contender that replays one of our launches.

    Raises: LaunchError, AssemblyError, DriverError.
    """
    from ptxgen.launcher.launching import PreparedCall

    return graph_contender(name, watch, PreparedCall(watch.device, launch, image), copies)

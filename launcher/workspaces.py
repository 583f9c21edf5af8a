"""Workspaces: memory that kernels use for themselves, so that nobody who launches must bring it.

Launches that may overlap must not share a workspace. Those on one stream do not overlap, so each
stream has one. A captured launch belongs to its graph, which may be replayed on any stream: each
capture has workspaces of its own, which live as long as the graph and all that is made of it.
"""

import ctypes
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ptxgen.errors import DriverError
from ptxgen.launch import Launch
from ptxgen.launcher.driver import CONTEXT_KILLERS, check
from ptxgen.launcher.streams import LEGACY_STREAM, PER_THREAD_STREAM
from ptxgen.launcher.timing import new_stream

if TYPE_CHECKING:
    from ptxgen.launcher.device import GpuDevice
    from ptxgen.launcher.module import Module

ALIGNMENT = 256
"""Of each workspace, as of an allocation."""
MOST_STREAMS = 16
"""Streams for which a kernel keeps workspaces; those of the stream used longest ago are freed."""
MOST_CAPTURED = 64
"""Streams of captures whose workspaces a kernel finds again. One more, and the one used longest ago
gets others if it goes on: captures take turns on a few streams, so that none does."""
SEMAPHORE_BYTES = 64
"""More than any sem_t: 32 bytes with glibc on 64-bit machines."""


class Workspaces:
    """The workspaces of one kernel: all zeros when a stream, or a capture on it, first uses them.
    Freed when nobody holds this any more.
    """

    def __init__(self, device: "GpuDevice", nbytes: Sequence[int]) -> None:
        """`nbytes`: size of each workspace. Nothing is allocated yet."""
        self.lock = threading.Lock()
        """To be held from `at` until the launch is issued: another use may free what is oldest."""
        self._device = device
        offsets, self._nbytes = [], 0
        for size in nbytes:
            offsets.append(self._nbytes)
            self._nbytes += size + -size % ALIGNMENT
        self._offsets = tuple(offsets)
        self._of_streams: OrderedDict[int, int] = OrderedDict()
        self._of_captures: OrderedDict[tuple[int, int], int] = OrderedDict()
        """Capture and stream -> where its workspaces begin; the graph holds them."""
        weakref.finalize(self, _free_all, device, self._of_streams)

    def at(self, stream: int) -> tuple[int, ...]:
        """Addresses for a launch on `stream`. A context must be current.

        The first use allocates, zeroes and waits for the zeros; this is legal during a capture.

        Raises: DriverError.
        """
        start = self._start(stream)
        return tuple(start + offset for offset in self._offsets)

    def _start(self, stream: int) -> int:
        driver = self._device.driver
        key = stream
        if stream in (0, LEGACY_STREAM):
            key = 0  # is never captured; asking would be an error while another stream is
        else:
            if stream == PER_THREAD_STREAM:  # one handle for a stream of each thread
                key = -int(check("cuStreamGetId", driver.cuStreamGetId(stream)))
            status = check("cuStreamIsCapturing", driver.cuStreamIsCapturing(stream))
            if status == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
                return self._captured(stream, key)
        found = self._of_streams.get(key)
        if found is None:
            _free_released()
            while len(self._of_streams) >= MOST_STREAMS:
                _free(self._device, self._of_streams.popitem(last=False)[1])
            # A new stream may have the handle of a destroyed one, but not before that one's work
            # has ended: cuStreamDestroy releases it only then.
            found = self._of_streams[key] = _zeroed(self._device, self._nbytes)
        self._of_streams.move_to_end(key)
        return found

    def _captured(self, stream: int, key: int) -> int:
        """Where the workspaces of the capture that `stream` takes part in begin."""
        result = self._device.driver.cuStreamGetCaptureInfo(stream)
        _status, capture, graph = check("cuStreamGetCaptureInfo", result)[:3]
        use = (int(capture), key)  # never the number of another capture
        found = self._of_captures.get(use)
        if found is None:
            _free_released()
            found = _zeroed(self._device, self._nbytes)
            _give_to_graph(self._device, graph, found)
            while len(self._of_captures) >= MOST_CAPTURED:
                self._of_captures.popitem(last=False)
            self._of_captures[use] = found
        self._of_captures.move_to_end(use)
        return found


_of_kernels: weakref.WeakValueDictionary[Any, Workspaces] = weakref.WeakValueDictionary()
_of_kernels_lock = threading.Lock()


def workspaces_of(device: "GpuDevice", module: "Module", launch: Launch) -> Workspaces:
    """The workspaces of a launch's kernel. Its calls share them, whatever their operands: on one
    stream they run one after another, and each leaves them ready for the next."""
    sizes = tuple(b.nbytes for b in launch.workspaces)
    key = (module, launch.entry, sizes)
    with _of_kernels_lock:
        found = _of_kernels.get(key)
        if found is None:
            found = _of_kernels[key] = Workspaces(device, sizes)
        return found


def _zeroed(device: "GpuDevice", nbytes: int) -> int:
    """Address of a new allocation that holds zeros."""
    driver = device.driver
    with _uncaptured(driver), new_stream(device) as stream:
        address = device.alloc(nbytes)
        try:
            if nbytes:
                result = driver.cuMemsetD8Async(address, 0, nbytes, stream)
                check("cuMemsetD8Async", result, f"{nbytes} bytes on {device.name}")
                check("cuStreamSynchronize", driver.cuStreamSynchronize(stream))
        except DriverError:
            device.free(address)
            raise
    return address


def _free(device: "GpuDevice", address: int) -> None:
    with device.current(), _uncaptured(device.driver, CONTEXT_KILLERS):
        device.free(address)  # which tolerates the same


def _free_all(device: "GpuDevice", addresses: OrderedDict[int, int]) -> None:
    while addresses:
        _free(device, addresses.popitem()[1])


@contextmanager
def _uncaptured(driver: Any, tolerated: Collection[int] = ()) -> Iterator[None]:
    """What the `with` block does is no part of a capture, and may be done during one.

    tolerated: codes of a lost context, in which the mode means nothing any more.

    Source: CUDA driver API, cuThreadExchangeStreamCaptureMode.
    """
    exchange = driver.cuThreadExchangeStreamCaptureMode
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    result = exchange(relaxed)
    if int(result[0]) in tolerated:
        yield
        return
    before = check("cuThreadExchangeStreamCaptureMode", result)
    try:
        yield
    finally:
        result = exchange(before)
        if int(result[0]) not in tolerated:
            check("cuThreadExchangeStreamCaptureMode", result)


_of_graphs: list[tuple["GpuDevice", int, Any]] = []
"""Device and address of workspaces of graphs, and a semaphore that counts 1 when the graph and all
that was instantiated from it are gone."""
_of_graphs_lock = threading.Lock()


def _give_to_graph(device: "GpuDevice", graph: Any, address: int) -> None:
    """Let a graph keep an allocation until it is destroyed; `_free_released` then frees it.

    The driver tells by a call on a thread of its own, which must not enter Python (a caller may
    hold its lock) or CUDA: it posts a semaphore. Source: CUDA driver API, cuUserObjectCreate.

    Raises: DriverError; the allocation is freed then.
    """
    driver, libc = device.driver, ctypes.CDLL(None)
    released = ctypes.create_string_buffer(SEMAPHORE_BYTES)
    libc.sem_init(released, 0, 0)
    post = ctypes.cast(libc.sem_post, ctypes.c_void_p).value
    flag = int(driver.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    move = int(driver.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE)
    with _of_graphs_lock:  # first: the driver writes to `released`, which must stay
        _of_graphs.append((device, address, released))
    result = driver.cuUserObjectCreate(ctypes.addressof(released), driver.CUhostFn(post), 1, flag)
    if int(result[0]):
        libc.sem_post(released)
    keeper = check("cuUserObjectCreate", result)
    result = driver.cuGraphRetainUserObject(graph, keeper, 1, move)
    if int(result[0]):
        driver.cuUserObjectRelease(keeper, 1)
    check("cuGraphRetainUserObject", result)


def _free_released() -> None:
    """Free the workspaces of graphs that are gone.

    A failure is no concern of the call that happens to free: the graph may be of another device,
    whose context, with all its memory, is gone. The memory is given up then.
    """
    libc = ctypes.CDLL(None)
    with _of_graphs_lock:
        for entry in tuple(_of_graphs):
            device, address, released = entry
            if libc.sem_trywait(released) == 0:
                _of_graphs.remove(entry)
                with suppress(DriverError):
                    _free(device, address)

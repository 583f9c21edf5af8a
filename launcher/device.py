"""GpuDevice: one GPU as a `ptxgen.launch.Device`, in the context that its process already uses."""

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ptxgen.errors import DriverError
from ptxgen.launch import Launch
from ptxgen.launcher.driver import CONTEXT_KILLERS, check, driver_error, load_driver
from ptxgen.launcher.module import Module, load_module
from ptxgen.launcher.module_cache import ModuleCache
from ptxgen.launcher.properties import device_properties
from ptxgen.launcher.streams import LEGACY_STREAM

_devices: dict[int, "GpuDevice"] = {}
"""Context id (a handle may be used again after its context is gone) -> its device."""
_devices_lock = threading.Lock()
_primary_contexts: dict[int, Any] = {}
"""GPU index -> its primary context, retained for the life of the process: the caller's
allocations may depend on it."""


class GpuDevice:
    """One GPU. Every call makes the context current in the calling thread and restores the other.

    The primary context is shared with CuPy, torch and the CUDA runtime, so their pointers are
    valid here. Where another context of the same GPU is current (PyCUDA's), that one is used.
    """

    def __init__(self, index: int | None = None) -> None:
        """GPU `index`; None = the GPU of the current context, or GPU 0 where there is none.

        Raises: ToolMissingError, DriverError.
        """
        self.driver = load_driver()
        """`cuda.bindings.driver`."""
        self.index, context = _find_context(self.driver, index)
        self.context = context
        """CUcontext."""
        self.context_address = int(context)
        self.properties = device_properties(self.index)
        self.name = self.properties.name
        self.modules = ModuleCache(self._load_module, self._unload_module)
        self._last_launch = ""
        self._event: Any = None
        self._event_lock = threading.Lock()

    @classmethod
    def get(cls, index: int | None = None) -> "GpuDevice":
        """The device that this process already has for that GPU and context, or a new one.

        Its module cache is shared by all who ask.
        """
        with _devices_lock:
            driver = load_driver()
            _index, context = _find_context(driver, index)
            identity = int(check("cuCtxGetId", driver.cuCtxGetId(context)))
            device = _devices.get(identity)
            if device is None:
                device = _devices[identity] = cls(index)
            return device

    def current(self) -> "CurrentContext":
        """`with device.current():` makes the context current in this thread."""
        return CurrentContext(self.driver, self.context, self.context_address)

    def alloc(self, nbytes: int) -> int:
        """Address of a new allocation of at least `nbytes` bytes, 256-byte aligned.

        Raises: DriverError.
        """
        with self.current():
            result = self.driver.cuMemAlloc(max(nbytes, 1))
            return int(check("cuMemAlloc", result, f"{nbytes} bytes on {self.name}"))

    def free(self, address: int) -> None:
        """Give an allocation back, after the kernels that use it (the driver waits)."""
        with self.current():
            code = int(self.driver.cuMemFree(address)[0])
        # After a fault the context and all its memory are lost; the fault was reported already.
        if code and code not in CONTEXT_KILLERS:
            raise driver_error(self.driver, "cuMemFree", code, f"address {address:#x}")

    def write(self, address: int, data: bytes | memoryview, stream: int = 0) -> None:
        """Copy host bytes to `address`, in the order of `stream`; `data` may then be changed."""
        source = np.frombuffer(data, np.uint8)
        if source.size:
            with self.current():
                # The driver copies pageable memory before it returns; pinned memory it may not.
                result = self.driver.cuMemcpyHtoDAsync(
                    address, source.ctypes.data, source.size, stream
                )
                check("cuMemcpyHtoDAsync", result, self._where(f"{source.size} bytes"))
                result = self.driver.cuStreamSynchronize(stream)
                check("cuStreamSynchronize", result, self._where())

    def read(self, address: int, nbytes: int) -> bytes:
        """Copy `nbytes` bytes at `address` to the host, after all launches have finished.

        Raises: DriverError, also for a fault of an earlier launch, which it names.
        """
        target = np.empty(nbytes, np.uint8)
        self.synchronize()
        if nbytes:
            with self.current():
                result = self.driver.cuMemcpyDtoH(target.ctypes.data, address, nbytes)
                check("cuMemcpyDtoH", result, self._where(f"{nbytes} bytes"))
        return target.tobytes()

    def fill(self, address: int, nbytes: int, value: int = 0xFF) -> None:
        """Set `nbytes` bytes at `address` to `value`."""
        if nbytes:
            with self.current():
                check("cuMemsetD8", self.driver.cuMemsetD8(address, value, nbytes))

    def synchronize(self, timeout_seconds: float | None = None) -> None:
        """Wait for all work of the context; with a limit, for the blocking streams' work.

        Raises: DriverError for a fault, or when the limit passes (the kernel then still runs, and
        only the end of the process stops it).
        """
        with self.current():
            if timeout_seconds is None:
                check("cuCtxSynchronize", self.driver.cuCtxSynchronize(), self._where())
            else:
                self._wait(timeout_seconds)

    def launch(
        self,
        launch: Launch,
        ptx: str | bytes,
        addresses: Mapping[str, int],
        stream: Any = None,
    ) -> None:
        """Launch the entry of `ptx` (text or a cubin) on `stream`; does not wait for it, unless it
        has workspaces and they are not among `addresses`: they are freed after it.

        Raises: LaunchError, AssemblyError, DriverError. A fault of the kernel itself shows in the
        next call that waits.
        """
        from ptxgen.launcher.launching import PreparedCall

        PreparedCall(self, launch, ptx)(addresses, stream)

    def order_after(self, stream: int, producer: int) -> None:
        """Make later work on `stream` wait for the work that is now on stream `producer`.

        The host does not wait. Nothing happens where both are the same stream.
        """
        if stream == producer or {stream, producer} <= {0, LEGACY_STREAM}:
            return
        with self._event_lock, self.current():
            if self._event is None:
                flags = int(self.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
                self._event = check("cuEventCreate", self.driver.cuEventCreate(flags))
            # A wait refers to the record before it, so one event serves all.
            check("cuEventRecord", self.driver.cuEventRecord(self._event, producer))
            result = self.driver.cuStreamWaitEvent(stream, self._event, 0)
            check("cuStreamWaitEvent", result, f"stream {stream:#x} for stream {producer:#x}")

    def note_launch(self, description: str) -> None:
        """Remember a launch, to name it if the context reports a fault later."""
        self._last_launch = description

    def _where(self, what: str = "") -> str:
        last = f"the last launch was {self._last_launch}" if self._last_launch else ""
        return "; ".join(part for part in (what, last) if part)

    def _wait(self, timeout_seconds: float) -> None:
        driver = self.driver
        flags = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        event = check("cuEventCreate", driver.cuEventCreate(flags))
        try:
            check("cuEventRecord", driver.cuEventRecord(event, 0), self._where())
            limit = time.monotonic() + timeout_seconds
            while True:
                result = driver.cuEventQuery(event)
                if int(result[0]) != int(driver.CUresult.CUDA_ERROR_NOT_READY):
                    check("cuEventQuery", result, self._where())
                    return
                if time.monotonic() > limit:
                    raise DriverError(
                        f"the GPU did not finish within {timeout_seconds} s; "
                        + self._where(
                            "usually a barrier that never completes; the emulator names it"
                        )
                    )
                time.sleep(0.001)
        finally:
            driver.cuEventDestroy(event)

    def _load_module(self, image: str | bytes, template_lines: Sequence[str] | None) -> Module:
        with self.current():
            return load_module(image, self.properties, template_lines)

    def _unload_module(self, module: Module) -> None:
        with self.current():
            check("cuCtxSynchronize", self.driver.cuCtxSynchronize(), self._where())
            module.unload()


def _find_context(driver: Any, index: int | None) -> tuple[int, Any]:
    """(GPU index, context): the current context if it is of GPU `index`, else the primary one."""
    context = check("cuCtxGetCurrent", driver.cuCtxGetCurrent())
    if int(context):
        found = int(check("cuCtxGetDevice", driver.cuCtxGetDevice()))
        if index in (None, found):
            return found, context
    index = index or 0
    context = _primary_contexts.get(index)
    if context is None:
        device = check("cuDeviceGet", driver.cuDeviceGet(index), f"GPU {index}")
        context = check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(device))
        context = _primary_contexts.setdefault(index, context)
    return index, context


class CurrentContext:
    """Context manager that makes a context current in the calling thread, if it is not."""

    __slots__ = ("_address", "_context", "_driver", "_pushed")

    def __init__(self, driver: Any, context: Any, address: int) -> None:
        self._driver = driver
        self._context = context
        self._address = address
        self._pushed = False

    def __enter__(self) -> None:
        current = check("cuCtxGetCurrent", self._driver.cuCtxGetCurrent())
        if int(current) != self._address:
            check("cuCtxPushCurrent", self._driver.cuCtxPushCurrent(self._context))
            self._pushed = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pushed:
            self._driver.cuCtxPopCurrent()
            self._pushed = False

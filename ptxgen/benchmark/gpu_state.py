"""gpu_state: clocks, power and temperature of a GPU while something runs on it (NVML)."""

import statistics
import threading
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any

from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.driver import check

INTERVAL_S = 0.02
"""Time between two readings."""


class StateSampler:
    """Context manager that reads the GPU's state in the background; `summary` tells what it saw."""

    def __init__(self, device: GpuDevice) -> None:
        self._nvml, self._handle = _open(device)
        self._readings: list[dict[str, float]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "StateSampler":
        if self._nvml is not None:
            self._stop.clear()
            self._readings.clear()
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def summary(self) -> dict[str, Any]:
        """Median of each reading, and extremes of the SM clock; empty where NVML is not here."""
        if not self._readings:
            return {}
        values = {name: [r[name] for r in self._readings] for name in self._readings[0]}
        found: dict[str, Any] = {name: statistics.median(v) for name, v in values.items()}
        found["sm_clock_mhz_range"] = [min(values["sm_clock_mhz"]), max(values["sm_clock_mhz"])]
        found["readings"] = len(self._readings)
        return found

    def limits(self) -> dict[str, Any]:
        """Facts that do not change: highest clocks, power limit, driver; empty without NVML."""
        nvml = self._nvml
        if nvml is None:
            return {}
        found: dict[str, Any] = {"driver_release": _text(nvml.nvmlSystemGetDriverVersion())}
        with suppress(nvml.NVMLError):  # each is missing on some boards
            found["max_sm_clock_mhz"] = nvml.nvmlDeviceGetMaxClockInfo(
                self._handle, nvml.NVML_CLOCK_SM
            )
        with suppress(nvml.NVMLError):
            found["power_limit_w"] = nvml.nvmlDeviceGetPowerManagementLimit(self._handle) / 1000
        with suppress(nvml.NVMLError):
            found["serving_other_processes"] = (
                len(nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)) > 1
            )
        return found

    def _run(self) -> None:
        nvml, handle = self._nvml, self._handle
        while not self._stop.is_set():
            with suppress(nvml.NVMLError):
                self._readings.append(
                    {
                        "sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                        "memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(
                            handle, nvml.NVML_CLOCK_MEM
                        ),
                        "power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
                        "temperature_c": nvml.nvmlDeviceGetTemperature(
                            handle, nvml.NVML_TEMPERATURE_GPU
                        ),
                    }
                )
            self._stop.wait(INTERVAL_S)


def clocks_class(limits: dict[str, Any], sm_clock_khz: int) -> str:
    """What tuned times are comparable under: highest SM clock and power limit."""
    clock = f"{sm_clock_khz // 1000} MHz"
    return f"{clock}, {limits['power_limit_w']:.0f} W" if "power_limit_w" in limits else clock


def _open(device: GpuDevice) -> tuple[Any, Any]:
    """(pynvml, handle of the device), or (None, None) where NVML cannot be used."""
    try:
        pynvml: Any = import_module("pynvml")  # by name: it ships no types
    except ImportError:
        return None, None
    try:
        pynvml.nvmlInit()
        bus = check("cuDeviceGetPCIBusId", device.driver.cuDeviceGetPCIBusId(32, device.index))
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(bytes(bus).split(b"\0")[0])
    except pynvml.NVMLError:
        return None, None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

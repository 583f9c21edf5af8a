"""The CUDA driver: finding it, its return codes as errors, its version.

Nothing here is imported or initialised before the first call that needs a GPU.
"""

import os
import threading
from typing import Any

from ptxgen.errors import DriverError, ToolMissingError

# PTX ISA that each driver version takes: (major, minor) of cuDriverGetVersion -> .version.
# Source: PTX ISA 9.0, "Release History"; from 13.0 on, 13.x takes 9.x.
_MAX_PTX = {
    (12, 0): (8, 0), (12, 1): (8, 1), (12, 2): (8, 2), (12, 3): (8, 3), (12, 4): (8, 4),
    (12, 5): (8, 5), (12, 6): (8, 5), (12, 7): (8, 6), (12, 8): (8, 7), (12, 9): (8, 8),
}  # fmt: skip

_HINTS = {
    1: "a size, alignment or attribute is out of range for this kernel or device (shared memory"
    " above the opt-in limit, a cluster that does not fit, a bad tensor map)",
    2: "free device memory, or use a smaller problem",
    3: "this process has not initialised the driver; after a fork use the 'spawn' start method",
    201: "no CUDA context is current in this thread; make the call through a GpuDevice",
    209: "the PTX or cubin was made for another GPU; emit for this device's arch",
    218: "the PTX has errors; the JIT log names the lines",
    221: "libnvidia-ptxjitcompiler is missing from the driver installation; load a cubin instead",
    222: "the PTX is newer than the driver; use a lower .version, a newer driver, or a cubin from"
    " ptxas",
    200: "the image is not PTX (no .version line?) or a cubin",
    500: "the module has no such symbol",
    700: "an address outside every allocation; usual causes in TMA kernels: a buffer smaller than"
    " the tensor map or the scale vector says, an address computed in 32 bits, or a buffer freed"
    " while the kernel ran; compute-sanitizer or the emulator shows the access",
    701: "registers x threads or shared memory exceed what one SM has; try a smaller tile or fewer"
    " warpgroups",
    702: "the kernel did not finish: usually an mbarrier that never completes (wrong expected"
    " bytes, parity or arrival count); the emulator names the wait",
    709: "something reset the device (cudaDeviceReset?) after ptxgen had taken its context",
    715: "usual causes in TMA kernels: the first coordinate of a box times the element size is no"
    " multiple of 16 bytes, a tensor map passed where its 128 bytes are not (parameter order), or a"
    " trap such as a tcgen05 guardrail",
    716: "usual causes in TMA kernels: a shared-memory tile not at a multiple of 128 bytes, a bulk"
    " copy of a size that is no multiple of 16, or a vector access across its alignment",
    717: "an address of the wrong state space, e.g. a global address given to st.shared",
    719: "the kernel died; usual causes: an instruction fault after a bad matrix descriptor, a"
    " trap, or an earlier failure on this context; the emulator or compute-sanitizer shows where",
    720: "a cooperative launch needs every CTA resident at once; use a smaller grid",
    802: "the driver is still starting the GPU fabric; try again",
    912: "the cluster does not fit on this device; try a smaller cluster or less shared memory",
}  # fmt: skip
"""What usually causes a CUresult, in kernels like ours."""

CONTEXT_KILLERS = frozenset({700, 702, 714, 715, 716, 717, 718, 719})
"""Codes after which every further call on the context fails."""

MIN_DRIVER_VERSION = 12000
"""First driver with tensor maps and .target sm_90a (CUDA 12.0)."""

_INSTALL = "pip install 'cuda-python>=13,<14'"
_EMULATE = "or use device='emulator', which needs no GPU"
_lock = threading.Lock()
_ready: dict[int, Any] = {}
"""Process id -> the initialised `cuda.bindings.driver` module (one entry; forks are noticed)."""


def load_driver() -> Any:
    """`cuda.bindings.driver`, after the driver was found and initialised.

    Raises: ToolMissingError if the bindings, the driver or a device is missing; DriverError if
    this process was forked from one that had used the driver.
    """
    module = _ready.get(os.getpid())
    if module is not None:
        return module
    with _lock:
        if _ready and os.getpid() not in _ready:
            raise DriverError(
                "this process was forked from one that had already used the CUDA driver, which does"
                " not survive a fork; must start fresh; try multiprocessing's 'spawn' method"
            )
        driver = _import_driver()
        if os.getpid() not in _ready:
            _initialise(driver)
            _ready[os.getpid()] = driver
        return driver


def _import_driver() -> Any:
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError as error:
        raise ToolMissingError(
            f"cuda-bindings is not installed ({error}); try {_INSTALL}, {_EMULATE}"
        ) from error
    try:
        # Probed before any other CUDA call: cuda.core can deadlock when there is no driver.
        load_nvidia_dynamic_lib("cuda")
    except DynamicLibNotFoundError as error:
        raise ToolMissingError(
            "no NVIDIA driver: libcuda.so.1 was not found; a GPU run needs the driver (Linux: your"
            " distribution's nvidia-driver package; containers: the NVIDIA container toolkit;"
            f" Windows: WSL); install it, {_EMULATE}"
        ) from error
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ToolMissingError(
            f"cuda.bindings.driver cannot be imported ({error}); try {_INSTALL}"
        ) from error
    return driver


def _initialise(driver: Any) -> None:
    code = int(driver.cuInit(0)[0])
    if code in (100, 34, 803, 804):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        seen = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible!r}"
        reason = {
            100: f"no CUDA device is visible{seen}",
            34: "libcuda.so is the link-time stub of the toolkit, not a driver",
            803: "the driver's kernel module and its libcuda differ in version; a reboot helps",
            804: "this GPU does not support the installed compatibility driver",
        }[code]
        raise ToolMissingError(f"cuInit failed ({code}): {reason}; mend that, {_EMULATE}")
    if code:
        raise driver_error(driver, "cuInit", code)
    version = int(driver.cuDriverGetVersion()[1])
    if version < MIN_DRIVER_VERSION:
        raise ToolMissingError(
            f"the NVIDIA driver supports CUDA {version // 1000}.{version % 1000 // 10}; ptxgen"
            f" needs at least 12.0 (driver 525); try a newer driver, {_EMULATE}"
        )


def driver_available() -> bool:
    """Whether a driver and at least one device can be used from this process."""
    try:
        return int(check("cuDeviceGetCount", load_driver().cuDeviceGetCount())) > 0
    except (ToolMissingError, DriverError):
        return False


def check(call_name: str, result: tuple[Any, ...], context: str = "") -> Any:
    """The values that a driver call returned beside its code: None, one value, or a tuple.

    `context` is added to the message: which kernel, which numbers.

    Raises: DriverError if the code is not CUDA_SUCCESS.
    """
    code = int(result[0])
    if code:
        raise driver_error(load_driver(), call_name, code, context)
    if len(result) == 1:
        return None
    return result[1] if len(result) == 2 else result[1:]


def driver_error(driver: Any, call_name: str, code: int, context: str = "") -> DriverError:
    """The error for CUresult `code` of `call_name`: number, name, usual cause, remedy."""
    try:
        name = driver.CUresult(code).name
    except ValueError:
        name = "an error code newer than cuda-bindings"
    parts = [f"{call_name} failed: {name} ({code})"]
    if context:
        parts.append(context)
    if code in _HINTS:
        parts.append(_HINTS[code])
    if code in CONTEXT_KILLERS:
        parts.append("this CUDA context cannot be used any more; start a new process")
    return DriverError("; ".join(parts))


def driver_version() -> tuple[int, int]:
    """(major, minor) of the CUDA version that the driver supports, e.g. (13, 0)."""
    value = int(check("cuDriverGetVersion", load_driver().cuDriverGetVersion()))
    return value // 1000, value % 1000 // 10


def max_ptx_version(version: tuple[int, int]) -> tuple[int, int] | None:
    """Newest PTX `.version` that a driver of CUDA `version` compiles; None if not known.

    Source: PTX ISA, "Release History"; 13.0 -> 9.0 measured on driver 580.159.
    """
    if version >= (13, 0):
        return 9 + version[0] - 13, version[1]
    return _MAX_PTX.get(version)

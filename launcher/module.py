"""Modules: PTX text or a cubin in a context, with the compiler's log, and the kernels in it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ptxgen.errors import AssemblyError, LaunchError, PtxgenError
from ptxgen.launcher.driver import (
    check,
    driver_error,
    driver_version,
    load_driver,
    max_ptx_version,
)
from ptxgen.launcher.jit_log import JitLog, decode_log
from ptxgen.launcher.properties import DeviceProperties
from ptxgen.launcher.ptx_header import (
    PtxHeader,
    check_target,
    check_version,
    read_header,
    version_message,
)

LOG_BYTES = 1 << 20
"""Size of each log buffer; the driver cuts what does not fit."""


@dataclass(frozen=True)
class Kernel:
    """One entry of a loaded module, with what the driver says of it."""

    entry: str
    handle: Any
    """CUfunction."""
    registers: int
    """Registers per thread."""
    local_bytes: int
    """Local memory of one thread: stack and spills."""
    static_smem_bytes: int
    max_cta_threads: int
    """Threads of one CTA that this kernel can have (`.maxntid`, registers)."""
    param_sizes: tuple[int, ...] | None
    """Bytes of each parameter; None where the driver is too old to say (before CUDA 12.4)."""


class Module:
    """A loaded module, until `unload`. Its context must be current for each call."""

    def __init__(self, handle: Any, jit_log: JitLog, entries: tuple[str, ...]) -> None:
        self.handle = handle
        self.jit_log = jit_log
        """Info and error log of the load, with registers, spills and C7xxx notes."""
        self.entries = entries
        """Names of the entries; empty for a cubin until one is asked for."""
        self._kernels: dict[str, Kernel] = {}

    def kernel(self, entry: str) -> Kernel:
        """The kernel called `entry`.

        Raises: LaunchError naming the entries that there are.
        """
        kernel = self._kernels.get(entry)
        if kernel is None:
            kernel = self._kernels[entry] = self._find(entry)
        return kernel

    def _find(self, entry: str) -> Kernel:
        driver = load_driver()
        result = driver.cuModuleGetFunction(self.handle, entry.encode())
        if int(result[0]) == int(driver.CUresult.CUDA_ERROR_NOT_FOUND):
            raise LaunchError(
                f"the module has no entry {entry!r}; there are "
                f"{', '.join(self._names()) or 'none'}; try one of them"
            )
        handle = check("cuModuleGetFunction", result, f"entry {entry}")
        attribute = driver.CUfunction_attribute

        def get(which: Any) -> int:
            return int(check("cuFuncGetAttribute", driver.cuFuncGetAttribute(which, handle)))

        return Kernel(
            entry=entry,
            handle=handle,
            registers=get(attribute.CU_FUNC_ATTRIBUTE_NUM_REGS),
            local_bytes=get(attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            static_smem_bytes=get(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
            max_cta_threads=get(attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            param_sizes=_param_sizes(driver, handle),
        )

    def _names(self) -> tuple[str, ...]:
        if self.entries or driver_version() < (12, 4):
            return self.entries
        driver = load_driver()
        count = check("cuModuleGetFunctionCount", driver.cuModuleGetFunctionCount(self.handle))
        functions = check(
            "cuModuleEnumerateFunctions", driver.cuModuleEnumerateFunctions(count, self.handle)
        )
        names = (check("cuFuncGetName", driver.cuFuncGetName(f)) for f in functions)
        self.entries = tuple(name.decode("utf-8", "replace") for name in names)
        return self.entries

    def unload(self) -> None:
        """Unload; no kernel of it may be running or be launched afterwards."""
        driver = load_driver()
        check("cuModuleUnload", driver.cuModuleUnload(self.handle))


def _param_sizes(driver: Any, handle: Any) -> tuple[int, ...] | None:
    if driver_version() < (12, 4):  # cuFuncGetParamInfo came with 12.4
        return None
    sizes: list[int] = []
    while True:
        result = driver.cuFuncGetParamInfo(handle, len(sizes))
        if int(result[0]) == int(driver.CUresult.CUDA_ERROR_INVALID_VALUE):
            return tuple(sizes)  # past the last parameter
        _offset, size = check("cuFuncGetParamInfo", result)
        sizes.append(int(size))


def load_module(
    image: str | bytes,
    device: DeviceProperties,
    template_lines: Sequence[str] | None = None,
) -> Module:
    """Load PTX text or a cubin into the current context.

    `template_lines` holds, for each PTX line, the template line that printed it, or ""; a
    message then names both.

    Raises: AssemblyError where the PTX or cubin is at fault (wrong target, newer than the driver,
    errors in the text), DriverError for anything else; both carry the compiler's log.
    """
    if isinstance(image, bytes) and not image.startswith(b"\x7fELF"):
        image = image.rstrip(b"\0").decode("utf-8", "replace")
    header = None
    if isinstance(image, str):
        header = read_header(image)
        check_target(header, device.compute_capability, device.name)
        check_version(header, max_ptx_version(device.driver_version), device.driver_version)
        # The driver wants the NUL; ptxas rejects it, so it is added nowhere else.
        image = image.rstrip("\0").encode() + b"\0"
    driver = load_driver()
    result, log = _load(driver, image)
    code = int(result[0])
    if code:
        raise _load_error(driver, code, log, header, device, template_lines)
    return Module(result[1], log, header.entries if header else ())


def _load(driver: Any, image: bytes) -> tuple[tuple[Any, ...], JitLog]:
    info, error = bytearray(LOG_BYTES), bytearray(LOG_BYTES)
    option = driver.CUjit_option
    options = {
        option.CU_JIT_INFO_LOG_BUFFER: info,
        option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
        option.CU_JIT_ERROR_LOG_BUFFER: error,
        option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
        option.CU_JIT_LOG_VERBOSE: 1,
    }
    start = time.perf_counter()
    result = driver.cuModuleLoadDataEx(
        image, len(options), list(options.keys()), list(options.values())
    )
    seconds = time.perf_counter() - start
    full = any(buffer[-2] != 0 for buffer in (info, error))
    return result, JitLog(decode_log(info), decode_log(error), seconds, full)


def _load_error(
    driver: Any,
    code: int,
    log: JitLog,
    header: PtxHeader | None,
    device: DeviceProperties,
    template_lines: Sequence[str] | None,
) -> PtxgenError:
    """The error for a failed load, with the log and, where it names one, the template line."""
    result = driver.CUresult
    logged = f"; JIT log:\n{log.text}" if log.text else "; the JIT log is empty"
    here = f"{device.name} (compute capability {'{}.{}'.format(*device.compute_capability)})"
    if code == int(result.CUDA_ERROR_UNSUPPORTED_PTX_VERSION) and header:
        newest = max_ptx_version(device.driver_version)
        return AssemblyError(version_message(header, newest, device.driver_version) + logged)
    if code == int(result.CUDA_ERROR_NO_BINARY_FOR_GPU):
        what = f"PTX for {header.target_name}" if header else "cubin"
        return AssemblyError(
            f"the {what} cannot run on {here} (CUDA_ERROR_NO_BINARY_FOR_GPU, {code}); try"
            f" assembling for {device.arch}{logged}"
        )
    if code == int(result.CUDA_ERROR_INVALID_PTX):
        errors = [m for m in log.messages(template_lines) if m.severity in ("error", "fatal")]
        first = f": {errors[0]}" if errors else ""
        return AssemblyError(
            f"the driver's PTX compiler rejected the text (CUDA_ERROR_INVALID_PTX, {code}){first}"
            + logged,
            errors[0].line if errors else None,
        )
    if code in (int(result.CUDA_ERROR_INVALID_IMAGE), int(result.CUDA_ERROR_INVALID_SOURCE)):
        what = "text is not PTX (it must start with .version)" if header else "bytes are no cubin"
        return AssemblyError(f"the {what}: CUresult {code}{logged}")
    return driver_error(driver, "cuModuleLoadDataEx", code, f"device {here}{logged}")

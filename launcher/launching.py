"""Launches: a `Launch` checked, configured once, and issued on a stream as often as wanted."""

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ptxgen.errors import ArgumentError, LaunchError
from ptxgen.launch import Launch
from ptxgen.launcher.driver import check, driver_error, load_driver
from ptxgen.launcher.module import Kernel
from ptxgen.launcher.parameters import ParameterBlock
from ptxgen.launcher.streams import stream_handle
from ptxgen.launcher.workspaces import workspaces_of

if TYPE_CHECKING:
    from ptxgen.launcher.device import GpuDevice

DEFAULT_SMEM_BYTES = 49152
"""Dynamic shared memory that a kernel has without opting in.
Measured on an H200: more than this without opting in is CUDA_ERROR_INVALID_VALUE."""
PORTABLE_CLUSTER_CTAS = 8
"""Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


def describe_launch(launch: Launch) -> str:
    """All numbers of a launch, for messages."""
    return (
        f"{launch.entry}: grid_ctas={launch.grid_ctas} cta_threads={launch.cta_threads}"
        f" cluster_ctas={launch.cluster_ctas} dynamic_smem_bytes={launch.dynamic_smem_bytes}"
    )


class PreparedCall:
    """One launch, checked and configured once, then called with new pointers and streams.

    A call packs what changed, and issues. Beyond a kernel's first workspace (below) it allocates
    nothing and waits for nothing, and so may be captured into a CUDA graph: parameters and tensor
    maps are copied into it, but keep the call while the graph may run, as it keeps the module
    loaded. Prepare it before the capture begins: to load a module may unload one that nobody uses,
    and that waits for the GPU. Calls from several threads are serialised.

    A kernel's workspaces need not be given: it has one for each stream (the last MOST_STREAMS
    used), made and zeroed by its first call there, which may be a captured one. Each capture has
    its own, which the graph keeps. One graph instantiated twice must not run twice at once.
    """

    def __init__(
        self,
        device: "GpuDevice",
        launch: Launch,
        image: str | bytes,
        *,
        template_lines: Sequence[str] | None = None,
    ) -> None:
        """`image`: PTX text or a cubin that has the entry `launch.entry`.

        template_lines: for each PTX line, the template line that printed it, for messages.

        Raises: ArgumentError if `device` is no GPU; LaunchError, AssemblyError, DriverError.
        """
        if not hasattr(device, "modules"):
            raise ArgumentError(
                f"device: must be a GpuDevice to prepare calls, got {type(device).__name__}; try "
                "its launch()"
            )
        self.device = device
        self.launch = launch
        own = launch.workspaces
        operands = tuple(b for b in launch.buffers if b.role != "workspace")
        self.block = ParameterBlock(launch.params, (*operands, *own))
        self._operand_names = tuple(b.name for b in operands)
        self._workspace_names = tuple(b.name for b in own)
        self.module = device.modules.acquire(image, template_lines)
        weakref.finalize(self, device.modules.release, self.module)
        self._driver = load_driver()
        self._workspaces = workspaces_of(device, self.module, launch) if own else None
        self._lock = self._workspaces.lock if self._workspaces else threading.Lock()
        self._stream = -1
        self._description = describe_launch(launch)
        with device.current():
            self.kernel = self.module.kernel(launch.entry)
            check_launch(launch, self.kernel, self.block.sizes, device.properties.smem_bytes)
            _set_attributes(self._driver, launch, self.kernel)
            self._config, self._attributes = _configuration(self._driver, launch)
            _check_cluster(self._driver, launch, self.kernel, self._config)

    def __call__(self, addresses: Mapping[str, int] | Sequence[int], stream: Any = None) -> None:
        """Issue the launch; does not wait for it.

        addresses: device address of each buffer, by name or in the order of the launch's buffers;
        without workspaces in order, and by name only where the caller has workspaces of his own.
        stream: see `stream_handle`.

        Raises: ArgumentError, LaunchError, DriverError.
        """
        given: Mapping[str, int] = {}
        if type(addresses) is not tuple and isinstance(addresses, Mapping):
            given, addresses = addresses, self._ordered(addresses)
        handle = stream_handle(stream)
        with self._lock, self.device.current():
            self.block.set_addresses(addresses, self._workspace_addresses(handle, given))
            if handle != self._stream:
                self._config.hStream = self._driver.CUstream(handle)
                self._stream = handle
            result = self._driver.cuLaunchKernelEx(
                self._config, self.kernel.handle, self.block.table_address, 0
            )
        self.device.note_launch(self._description)
        if int(result[0]):
            raise driver_error(
                self._driver, "cuLaunchKernelEx", int(result[0]),
                f"{self._description} registers={self.kernel.registers}"
                f" static_smem_bytes={self.kernel.static_smem_bytes} on {self.device.name}",
            )  # fmt: skip

    def _workspace_addresses(self, stream: int, given: Mapping[str, int]) -> tuple[int, ...]:
        """What the caller gave, else our own."""
        names = self._workspace_names
        if self._workspaces is None or all(name in given for name in names):
            return tuple(given[name] for name in names)
        own = dict(zip(names, self._workspaces.at(stream), strict=True))
        return tuple(given.get(name, own[name]) for name in names)

    def _ordered(self, addresses: Mapping[str, int]) -> tuple[int, ...]:
        missing = [name for name in self._operand_names if name not in addresses]
        if missing:
            raise ArgumentError(
                f"no address for buffer {missing[0]!r}; must have one for each of"
                f" {self._operand_names}, got {tuple(addresses)}; try to add it"
            )
        return tuple(addresses[name] for name in self._operand_names)


def check_launch(launch: Launch, kernel: Kernel, sizes: Sequence[int], smem_bytes: int) -> None:
    """Check a launch against its kernel and the device's shared memory per CTA.

    `sizes`: bytes of each parameter that we would pass.

    Raises: LaunchError naming the number that does not fit.
    """
    described = describe_launch(launch)
    threads = launch.cta_threads[0] * launch.cta_threads[1] * launch.cta_threads[2]
    if threads > kernel.max_cta_threads:
        raise LaunchError(
            f"{described}: {threads} threads, this kernel can have {kernel.max_cta_threads}"
            f" (.maxntid/.reqntid, or {kernel.registers} registers per thread); try fewer threads"
        )
    smem = launch.dynamic_smem_bytes + kernel.static_smem_bytes
    if smem > smem_bytes:
        raise LaunchError(
            f"{described} needs {smem} B of shared memory with {kernel.static_smem_bytes} B static,"
            f" the device has {smem_bytes} B per CTA; try fewer stages or a smaller tile"
        )
    if kernel.param_sizes is not None and tuple(sizes) != kernel.param_sizes:
        names = ", ".join(f"{p.name}={n}" for p, n in zip(launch.params, sizes, strict=True))
        raise LaunchError(
            f"{launch.entry} declares parameters of {list(kernel.param_sizes)} bytes, the launch"
            f" passes {list(sizes)} ({names}); must agree in number and size; try what the text "
            "declares"
        )


def _set_attributes(driver: Any, launch: Launch, kernel: Kernel) -> None:
    """Opt in to large dynamic shared memory and to clusters of more than 8 CTAs."""
    attribute = driver.CUfunction_attribute
    wanted = []
    if launch.dynamic_smem_bytes + kernel.static_smem_bytes > DEFAULT_SMEM_BYTES:
        # The attribute belongs to the function: raised only, as other launches may need more.
        which = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        now = check("cuFuncGetAttribute", driver.cuFuncGetAttribute(which, kernel.handle))
        if launch.dynamic_smem_bytes > int(now):
            wanted.append((which, launch.dynamic_smem_bytes))
    cluster = launch.cluster_ctas[0] * launch.cluster_ctas[1] * launch.cluster_ctas[2]
    if cluster > PORTABLE_CLUSTER_CTAS:
        wanted.append((attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
    for which, value in wanted:
        result = driver.cuFuncSetAttribute(kernel.handle, which, value)
        check("cuFuncSetAttribute", result, f"{which.name}={value} for {describe_launch(launch)}")


def _configuration(driver: Any, launch: Launch) -> tuple[Any, list[Any]]:
    """(CUlaunchConfig, the attributes that it refers to)."""
    config = driver.CUlaunchConfig()
    # cuLaunchKernelEx counts the grid in CTAs, as we do; cuda.core counts it in clusters.
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid_ctas
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.cta_threads
    config.sharedMemBytes = launch.dynamic_smem_bytes
    config.hStream = driver.CUstream(0)
    identifier = driver.CUlaunchAttributeID
    attributes = []
    if launch.cluster_ctas != (1, 1, 1):
        cluster = driver.CUlaunchAttribute()
        cluster.id = identifier.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dim = cluster.value.clusterDim
        dim.x, dim.y, dim.z = launch.cluster_ctas
        attributes.append(cluster)
    if launch.overlaps_previous:
        overlap = driver.CUlaunchAttribute()
        overlap.id = identifier.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        overlap.value.programmaticStreamSerializationAllowed = 1
        attributes.append(overlap)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config, attributes


def _check_cluster(driver: Any, launch: Launch, kernel: Kernel, config: Any) -> None:
    """Refuse a cluster that can never be resident, with all numbers.

    Raises: LaunchError.
    """
    if launch.cluster_ctas == (1, 1, 1):
        return
    result = driver.cuOccupancyMaxActiveClusters(kernel.handle, config)
    count = check("cuOccupancyMaxActiveClusters", result, describe_launch(launch))
    if int(count) == 0:
        raise LaunchError(
            f"{describe_launch(launch)}: no cluster of this size fits on the device, with"
            f" {kernel.registers} registers per thread; try a smaller cluster or fewer stages"
        )

"""Facts about one GPU, asked from its driver."""

from dataclasses import dataclass

from ptxgen.arch import ARCHS
from ptxgen.launcher.driver import check, driver_version, load_driver


@dataclass(frozen=True)
class DeviceProperties:
    """Facts about one GPU, as its driver states them."""

    name: str
    index: int
    """Ordinal within CUDA_VISIBLE_DEVICES."""
    compute_capability: tuple[int, int]
    arch: str
    """PTX target of its Tensor Core instructions, e.g. sm_90a."""
    num_sms: int
    sm_clock_khz: int
    """Highest SM clock."""
    memory_clock_khz: int
    l2_bytes: int
    memory_bytes: int
    smem_bytes: int
    """Shared memory that one CTA can have with opt-in."""
    smem_per_sm_bytes: int
    driver_version: tuple[int, int]


def arch_of(compute_capability: tuple[int, int]) -> str:
    """The PTX target for a compute capability: the `a` target where we know one."""
    base = f"sm_{compute_capability[0]}{compute_capability[1]}"
    return f"{base}a" if f"{base}a" in ARCHS else base


def device_properties(index: int) -> DeviceProperties:
    """Properties of device `index`; needs no context.

    Raises: ToolMissingError, DriverError.
    """
    driver = load_driver()
    device = check("cuDeviceGet", driver.cuDeviceGet(index), f"device index {index}")
    attributes = driver.CUdevice_attribute

    def get(name: str) -> int:
        attribute = getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(
            check("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(attribute, device), name)
        )

    name = check("cuDeviceGetName", driver.cuDeviceGetName(128, device))
    capability = (get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR"))
    return DeviceProperties(
        name=name.split(b"\0")[0].decode("utf-8", "replace"),
        index=index,
        compute_capability=capability,
        arch=arch_of(capability),
        num_sms=get("MULTIPROCESSOR_COUNT"),
        sm_clock_khz=get("CLOCK_RATE"),
        memory_clock_khz=get("MEMORY_CLOCK_RATE"),
        l2_bytes=get("L2_CACHE_SIZE"),
        memory_bytes=int(check("cuDeviceTotalMem", driver.cuDeviceTotalMem(device))),
        smem_bytes=get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        smem_per_sm_bytes=get("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        driver_version=driver_version(),
    )

"""GPUs of other machines, for what is decided by a GPU's name and properties alone."""

from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.properties import DeviceProperties


class OtherGpu(GpuDevice):
    """A GPU of another machine, as far as its name and properties tell."""

    def __init__(self, name: str, arch: str, num_sms: int) -> None:
        self.name = name
        self.properties = DeviceProperties(
            name, 0, (0, 0), arch, num_sms, 0, 0, 0, 0, 0, 0, (13, 0)
        )

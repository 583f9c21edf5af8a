"""Everything that touches the GPU, and the calls that take arrays or pointers.

The names are loaded when they are first used; CUDA when a GPU is.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxgen.launcher.arrays import RawArray, view
    from ptxgen.launcher.device import GpuDevice
    from ptxgen.launcher.device_array import DeviceArray
    from ptxgen.launcher.gemm_call import gemm
    from ptxgen.launcher.grouped_call import grouped_gemm
    from ptxgen.launcher.launching import PreparedCall

_HOMES = {
    "DeviceArray": "ptxgen.launcher.device_array",
    "GpuDevice": "ptxgen.launcher.device",
    "PreparedCall": "ptxgen.launcher.launching",
    "RawArray": "ptxgen.launcher.arrays",
    "gemm": "ptxgen.launcher.gemm_call",
    "grouped_gemm": "ptxgen.launcher.grouped_call",
    "view": "ptxgen.launcher.arrays",
}
"""Public name -> the module that defines it."""

__all__ = ["DeviceArray", "GpuDevice", "PreparedCall", "RawArray", "gemm", "grouped_gemm", "view"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module.

    Raises: AttributeError if there is no such name.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ptxgen.launcher' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value

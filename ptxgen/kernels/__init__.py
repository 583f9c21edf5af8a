"""The kernels: one module here and one template of the same stem each."""

from types import ModuleType

from ptxgen.errors import ConfigError
from ptxgen.kernels import gemm_sm90
from ptxgen.problem import Gemm

KERNELS: dict[str, ModuleType] = {"gemm_sm90": gemm_sm90}
"""Name -> module with Config, plan, default_config and configs."""


def kernel_for(problem: Gemm, arch: str = gemm_sm90.TARGET) -> ModuleType:
    """The kernel that computes `problem` on `arch`.

    Raises: ConfigError if none does.
    """
    for module in KERNELS.values():
        if module.TARGET == arch:
            return module
    targets = sorted({module.TARGET for module in KERNELS.values()})
    raise ConfigError(
        f"arch={arch} has no kernel for a dense GEMM: wgmma exists on sm_90a only; "
        f"must be one of {', '.join(targets)}"
    )

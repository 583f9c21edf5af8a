"""emit: from a problem to PTX text in one call."""

from ptxgen.kernels import kernel_for
from ptxgen.kernels.gemm_sm90 import TARGET, Config
from ptxgen.plans import Plan
from ptxgen.problem import Gemm
from ptxgen.renderer import render


def make_plan(
    problem: Gemm, config: Config | None = None, arch: str = TARGET, num_sms: int = 132
) -> Plan:
    """The plan of the kernel that computes `problem` on `arch`.

    Raises: ConfigError.
    """
    kernel = kernel_for(problem, arch)
    return kernel.plan(problem, config, num_sms)  # type: ignore[no-any-return]


def emit(problem: Gemm, config: Config | None = None, arch: str = TARGET) -> str:
    """The PTX text for `problem`. It depends on the config alone, so sizes do not change it.

    Raises: ConfigError.
    """
    return render(make_plan(problem, config, arch)).text

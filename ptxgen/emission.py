"""emit: from a problem to PTX text in one call."""

from typing import Any

from ptxgen.errors import ConfigError
from ptxgen.kernels import kernel_for, kernel_of, target_fields
from ptxgen.kernels.gemm_sm90 import TARGET
from ptxgen.plans import Plan
from ptxgen.problem import Gemm
from ptxgen.renderer import render


def make_plan(
    problem: Gemm, config: Any = None, arch: str | None = None, num_sms: int = 132
) -> Plan:
    """The plan of the kernel that computes `problem` on `arch`, or of the one of `config`.

    arch: None = that of the config, else sm_90a.

    Raises: ConfigError.
    """
    config = default_config(problem, arch) if config is None else config
    kernel = kernel_of(config)
    if arch is not None and arch not in kernel.TARGETS:
        raise ConfigError(
            f"config of {kernel.NAME} is for {', '.join(kernel.TARGETS)}, got arch={arch}; try "
            "config=None"
        )
    return kernel.plan(problem, config, num_sms)  # type: ignore[no-any-return]


def default_config(problem: Gemm, arch: str | None = None) -> Any:
    """The default config of the kernel that computes `problem` on `arch`; None = sm_90a.

    Raises: ConfigError.
    """
    arch = arch or TARGET
    kernel = kernel_for(problem, arch)
    return kernel.default_config(problem, **target_fields(kernel, arch))


def emit(problem: Gemm, config: Any = None, arch: str | None = None) -> str:
    """The PTX text for `problem`. It depends on the config alone, so sizes do not change it.

    Raises: ConfigError.
    """
    return render(make_plan(problem, config, arch)).text

"""The kernels: one module here and one template of the same stem each."""

from dataclasses import replace
from types import ModuleType
from typing import Any

from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import (
    gemm_mma,
    gemm_sm90,
    gemm_sm100,
    gemm_sm100_blockscaled,
    grouped_sm90,
    grouped_sm100,
)
from ptxgen.problem import MICRO_SCALES, Gemm

KERNELS: dict[str, ModuleType] = {
    module.NAME: module for module in (gemm_sm90, gemm_sm100, gemm_sm100_blockscaled, gemm_mma)
}
"""Name -> module with Config, TARGETS, plan, default_config, check_operands and configs.
check_operands takes one of several TARGETS."""
GROUPED_KERNELS: dict[str, ModuleType] = {
    module.NAME: module for module in (grouped_sm90, grouped_sm100)
}
"""The same for grouped problems."""
_PREFERRED = (gemm_sm90, gemm_sm100, gemm_mma)
"""Kernels for scales that a kernel applies, the fastest first."""


def kernel_for(problem: Gemm, arch: str = gemm_sm90.TARGET) -> ModuleType:
    """The kernel that computes `problem` on `arch`: gemm_sm90 or gemm_sm100 where TMA and the
    Tensor Core instruction can serve the operands, else gemm_mma. Scales that the Tensor Core
    applies have a kernel of their own.

    Raises: ConfigError if none does, or if a slower one would only for the sake of a promotion that
    the preferred one does not need: the refusal of the kernel that was made for the arch.
    """
    if problem.scale in MICRO_SCALES and arch in gemm_sm100_blockscaled.TARGETS:
        return gemm_sm100_blockscaled
    refused = passed_over(problem, arch)
    unpromoted = refused
    if refused and problem.accumulate != "fast":
        unpromoted = passed_over(replace(problem, accumulate="fast"), arch)
    for module in _PREFERRED:
        if arch not in module.TARGETS:
            continue
        if module.NAME not in refused:
            return module
        if module.NAME not in unpromoted:
            raise refused[module.NAME]
    if refused:
        raise next(iter(refused.values()))
    targets = sorted({target for module in KERNELS.values() for target in module.TARGETS})
    raise ConfigError(
        f"arch={arch} has no kernel for a dense GEMM; must be one of {', '.join(targets)}; try "
        f"arch={gemm_sm90.TARGET}"
    )


def passed_over(problem: Gemm, arch: str) -> dict[str, ConfigError]:
    """Kernels of `arch` that cannot serve the operands of `problem` -> why, the preferred first."""
    refused = {}
    for module in _PREFERRED:
        if arch not in module.TARGETS:
            continue
        try:
            module.check_operands(problem, **target_fields(module, arch))
        except ConfigError as error:
            refused[module.NAME] = error
    return refused


def grouped_kernel_for(problem: GroupedGemm, arch: str = gemm_sm90.TARGET) -> ModuleType:
    """The kernel that computes the groups of `problem` on `arch`.

    Raises: ConfigError if none does.
    """
    for module in GROUPED_KERNELS.values():
        if arch in module.TARGETS:
            module.check_operands(problem)
            return module
    targets = sorted({target for m in GROUPED_KERNELS.values() for target in m.TARGETS})
    raise ConfigError(
        f"arch={arch} has no kernel for grouped GEMM; must be one of {', '.join(targets)}; try "
        f"arch={gemm_sm90.TARGET}"
    )


def kernel_of(config: Any) -> ModuleType:
    """The kernel that `config` belongs to.

    Raises: ConfigError if it is no kernel's Config.
    """
    for module in (*KERNELS.values(), *GROUPED_KERNELS.values()):
        if type(config) is module.Config:
            return module
    names = ", ".join(f"{name}.Config" for name in (*KERNELS, *GROUPED_KERNELS))
    raise ConfigError(
        f"config must be one of {names}, got {type(config).__name__}; try what default_config of a "
        "kernel returns"
    )


def unit_of(config: Any) -> str:
    """The Tensor Core's instruction, as ptxgen.verification models its sums."""
    return str(getattr(config, "unit", kernel_of(config).UNIT))


def target_fields(kernel: ModuleType, arch: str) -> dict[str, str]:
    """Fields of the kernel's Config that `arch` decides."""
    return {"target": arch} if len(kernel.TARGETS) > 1 else {}


def k_parts(config: Any, problem: Gemm) -> tuple[tuple[int, int], ...]:
    """The parts of K that `config` sums on their own, as (first, past the last) elements."""
    parts = getattr(config, "k_parts", None)
    return parts(problem.k) if parts else ((0, problem.k),)

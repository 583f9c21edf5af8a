"""Which grouped operands wgmma and TMA can take, and whether a config serves them."""

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm, one_group
from ptxgen.kernels.agreement import check_agrees, check_plain
from ptxgen.kernels.grouped_config import MOST_SHARED_GROUPS, NAME, Config
from ptxgen.operand_maps import TMA_BYTES, check_d_fits_tma, check_operands_fit
from ptxgen.problem import FP8, INTEGERS, MICRO_SCALES, Gemm

D_FORMATS = ("bf16", "f16", "f32")


def check_formats(problem: GroupedGemm) -> None:
    """Refuse the formats that wgmma does not have.

    Raises: ConfigError.
    """
    elsewhere = problem.a in ("tf32", *INTEGERS) and problem.mode != "kgrouped"
    if problem.a not in ("bf16", "f16", *FP8) or problem.b not in ("bf16", "f16", *FP8):
        raise ConfigError(
            f"{NAME} multiplies bf16, f16, e4m3 and e5m2, got a={problem.a} and b={problem.b}; try "
            + ("arch=sm_100a" if elsewhere else "a=e4m3 and b=e4m3")
        )
    if problem.d not in D_FORMATS:
        raise ConfigError(
            f"{NAME} rounds D to one of {', '.join(D_FORMATS)}, got d={problem.d}; try d=bf16"
        )
    if problem.scale in MICRO_SCALES:
        raise ConfigError(
            f"scale={problem.scale} is applied by the Tensor Core of sm_100a, not by wgmma; try "
            "scale=block or scale=group"
        )


def as_groups(problem: GroupedGemm | Gemm) -> GroupedGemm:
    """A dense problem as a batch of one group; a grouped one as it is.

    Raises: ConfigError if groups have no such epilogue, D or format of scales; ProblemError if A or
    B is not K-major.
    """
    if isinstance(problem, Gemm):
        check_plain(problem, NAME)
    return one_group(problem)


def check_operands(problem: GroupedGemm | Gemm) -> None:
    """Refuse operands that wgmma or TMA cannot take, whatever the config.

    Raises: ConfigError, ProblemError.
    """
    problem = as_groups(problem)
    check_formats(problem)
    if problem.mode == "kgrouped":
        _check_k_starts(problem)
    check_operands_fit(problem)


def _check_k_starts(problem: GroupedGemm) -> None:
    """Refuse parts of K that may start between TMA's units: such a copy is an illegal instruction.

    Raises: ConfigError.
    """
    step = TMA_BYTES // dtype(problem.a).bytes
    if problem.alignment % step:
        raise ConfigError(
            f"alignment={problem.alignment}: with mode=kgrouped each group's part of K must start "
            f"at a multiple of {TMA_BYTES} bytes, {step} elements of {problem.a}, for TMA to read "
            f"it; if all do, try alignment={step}"
        )


def check_serves(problem: GroupedGemm, config: Config) -> None:
    """Refuse a config that does not compute the problem.

    Raises: ConfigError.
    """
    check_operands(problem)
    check_agrees(problem, config)
    check_d_fits_tma(problem, config.store)
    if config.stream_k and (problem.groups > MOST_SHARED_GROUPS or not problem.k):
        raise ConfigError(
            f"stream_k counts the tiles of up to {MOST_SHARED_GROUPS} groups before it hands them "
            f"out, and shares them along K, got groups={problem.groups} and k={problem.k}; try "
            "stream_k=off"
        )

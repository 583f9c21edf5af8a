"""Which operands gemm_mma can take, and how wide it may access them."""

from math import lcm

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.kernels.agreement import check_plain
from ptxgen.kernels.gemm_mma_config import (
    FP4_KINDS,
    NAME,
    OPERANDS,
    OUTPUTS,
    PACKINGS,
    SCALES,
    check_target,
    copy_sizes,
    mma_kind,
)
from ptxgen.layout import align_up
from ptxgen.problem import INTEGERS, MICRO_SCALES, Gemm
from ptxgen.warp_tiles import ASYNC_COPY_BYTES


def check_operands(problem: Gemm, target: str = "") -> None:
    """Refuse what mma.sync, that of `target` if it is given, does not multiply or this kernel does
    not scale.

    Raises: ConfigError.
    """
    check_plain(problem, NAME)
    if problem.a not in OPERANDS or problem.b not in OPERANDS or problem.d not in OUTPUTS:
        raise ConfigError(
            f"{NAME} multiplies {', '.join(OPERANDS)} into {', '.join(OUTPUTS)}, got "
            f"a={problem.a}, b={problem.b}, d={problem.d}; try "
            + ("arch=sm_100a" if problem.a in INTEGERS else "a=bf16, b=bf16, d=bf16")
        )
    if problem.scale not in (*SCALES, *MICRO_SCALES):
        raise ConfigError(
            f"{NAME} has scale {', '.join(SCALES)}, got {problem.scale}; try arch=sm_90a with FP8 "
            "operands that TMA can address (base and row stride multiples of 16 bytes, layout nt)"
        )
    if problem.scale in MICRO_SCALES and problem.accumulate != "fast":
        raise ConfigError(
            f"accumulate={problem.accumulate} must be fast: the Tensor Core scales every block "
            "itself, so there is nothing to promote; try accumulate=fast"
        )
    for operand, k_major in (("a", problem.layout[0] == "n"), ("b", problem.layout[1] == "t")):
        kind = dtype(getattr(problem, operand))
        if not k_major and (kind.is_packed or problem.scale in MICRO_SCALES):
            raise ConfigError(
                f"layout={problem.layout}: {operand.upper()} of {kind} with scale={problem.scale} "
                "must be K-major, as mma.sync takes it; try layout=nt"
            )
    if target:
        check_target(target, problem.a, problem.b, problem.scale)
    for operand in ("a", "b"):
        _check_whole_bytes(problem, operand)


def _check_whole_bytes(problem: Gemm, operand: str) -> None:
    """Refuse rows of formats below 8 bits that do not begin and end at whole bytes, or begin where
    the narrowest copy cannot."""
    kind, name = dtype(getattr(problem, operand)), operand.upper()
    if not kind.is_packed or not problem.extent_bytes(operand):
        return
    is_fp4 = mma_kind(problem.a, problem.b, problem.scale) in FP4_KINDS
    narrowest = copy_sizes(kind.name, is_fp4)[-1]
    shared, step = PACKINGS[kind.bits][0], lcm(8 * narrowest, kind.bits) // kind.bits
    one_row = getattr(problem, f"{operand}_shape")[0] == 1
    if problem.k % shared:
        raise ConfigError(
            f"{name} of {kind}, {shared} elements of which share bytes, has a k of {problem.k}; "
            f"must be a multiple of {shared}; try both operands with zeros appended up to "
            f"k={align_up(problem.k, shared if one_row else step)}"
        )
    stride = problem.stride(operand)
    if not one_row and stride % step:
        raise ConfigError(
            f"{name} of {kind} has a row stride of {stride} elements; must be a multiple of {step},"
            f" {step * kind.bits // 8} bytes; try a padded copy with a row stride of "
            f"{align_up(stride, step)} elements"
        )
    alignment = getattr(problem, f"{operand}_alignment")
    if alignment % narrowest:
        raise ConfigError(
            f"{name} of {kind} starts at an address that is a multiple of {alignment} bytes only; "
            f"must be a multiple of {narrowest}; try a copy of {name}"
        )


def widest_access(problem: Gemm, operand: str) -> int:
    """Bytes of the widest access, 1 to 16, at which every row of operand a, b or d starts."""
    rows, columns = getattr(problem, f"{operand}_shape")
    kind = dtype(getattr(problem, operand))
    element_bytes = kind.bytes
    steps = [getattr(problem, f"{operand}_alignment")]
    if rows > 1:
        steps.append(kind.packed_bytes(problem.stride(operand)))
    widest = next(c for c in (16, 8, 4, 2, 1) if all(step % c == 0 for step in steps))
    if operand != "d" and element_bytes < widest < min(ASYNC_COPY_BYTES):
        # Loads through registers are whole, so the last one of a row must not pass its end.
        return widest if kind.packed_bytes(columns) % widest == 0 else element_bytes
    return widest

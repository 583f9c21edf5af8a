"""Which operands gemm_mma can take, and how wide it may access them."""

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.kernels.agreement import check_plain
from ptxgen.kernels.gemm_mma_config import NAME, OPERANDS, OUTPUTS, PACKINGS, SCALES
from ptxgen.layout import align_up
from ptxgen.problem import INTEGERS, MICRO_SCALES, Gemm
from ptxgen.warp_tiles import ASYNC_COPY_BYTES


def check_operands(problem: Gemm) -> None:
    """Refuse what mma.sync does not multiply or this kernel does not scale.

    Raises: ConfigError.
    """
    check_plain(problem, NAME)
    if problem.a not in OPERANDS or problem.b not in OPERANDS or problem.d not in OUTPUTS:
        raise ConfigError(
            f"{NAME} multiplies {', '.join(OPERANDS)} into {', '.join(OUTPUTS)}, got "
            f"a={problem.a}, b={problem.b}, d={problem.d}"
            + ("; try arch=sm_100a" if problem.a in INTEGERS else "")
        )
    if problem.scale not in (*SCALES, *MICRO_SCALES):
        raise ConfigError(
            f"{NAME} has scale {', '.join(SCALES)}, got {problem.scale}; try arch=sm_90a with FP8 "
            "operands that TMA can address (base and row stride multiples of 16 bytes, layout nt)"
        )
    if problem.scale in MICRO_SCALES and problem.accumulate != "fast":
        raise ConfigError(
            f"accumulate={problem.accumulate} must be fast: the Tensor Core scales every block "
            "itself, so there is nothing to promote"
        )
    for operand, k_major in (("a", problem.layout[0] == "n"), ("b", problem.layout[1] == "t")):
        kind = dtype(getattr(problem, operand))
        if not k_major and (kind.is_packed or problem.scale in MICRO_SCALES):
            raise ConfigError(
                f"layout={problem.layout}: {operand.upper()} of {kind} with scale={problem.scale} "
                "must be K-major, as mma.sync takes it; try layout=nt"
            )
        if kind.is_packed:
            _check_whole_bytes(problem, operand)


def _check_whole_bytes(problem: Gemm, operand: str) -> None:
    """Refuse rows of formats below 8 bits that do not begin and end at whole bytes."""
    kind = dtype(getattr(problem, operand))
    step = PACKINGS[kind.bits][0]
    sizes = {"k": problem.k}
    if getattr(problem, f"{operand}_shape")[0] > 1:
        sizes["row stride"] = problem.stride(operand)
    for name, value in sizes.items():
        if value % step:
            raise ConfigError(
                f"{operand.upper()} of {kind}, {step} elements of which share bytes, has a {name} "
                f"of {value}; must be a multiple of {step}; try both operands with zeros appended "
                f"up to k={align_up(problem.k, step)}"
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

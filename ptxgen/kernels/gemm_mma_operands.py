"""Operands of gemm_mma: formats, scales and strides that mma.sync and its copies take."""

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.kernels.agreement import check_plain
from ptxgen.layout import align_up
from ptxgen.micro_kinds import micro_kind
from ptxgen.problem import INTEGERS, MICRO_SCALES, NARROW_FLOATS, Gemm
from ptxgen.warp_tiles import ASYNC_COPY_BYTES

NAME = "gemm_mma"
OPERANDS = ("bf16", "f16", *NARROW_FLOATS)
OUTPUTS = ("bf16", "f16", "f32")
SCALES = ("none", "tensor", "rowcol")
SMALLER_KIND = "f8f6f4"
"""The kind that multiplies formats below 8 bits without scales."""
PACKINGS = {8: (1, 1), 6: (4, 3), 4: (2, 1)}
"""Bits of an element -> how many share how many bytes."""


def mma_kind(a: str, b: str, scale: str) -> str:
    """The MMA's kind that formats and scales call for; none where mma.sync has them without."""
    if scale in MICRO_SCALES:
        return micro_kind(a, b, scale)
    return SMALLER_KIND if dtype(a).is_packed or dtype(b).is_packed else ""


def copy_sizes(name: str, is_fp4: bool) -> tuple[int, ...]:
    """Legal bytes of one load of an operand of dtype `name`: what is unpacked comes by cp.async, in
    parts that 16 elements are made of."""
    kind = dtype(name)
    if kind.is_packed and not is_fp4:
        return {6: (4,), 4: (8, 4)}[kind.bits]
    return tuple(c for c in (16, 8, 4, 2, 1) if c >= kind.bytes)


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

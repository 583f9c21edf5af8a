"""What TMA asks of the matrices of a GEMM, and their tensor maps.

Source: CUDA driver API, "Tensor Map Object Management" (shared/reference/ptx.md B4).
"""

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.launch import TensorMap
from ptxgen.layout import align_up
from ptxgen.problem import Gemm

TMA_BYTES = 16
"""TMA's unit for addresses and strides."""
PACKED_BYTES = 32
"""The same for formats below 8 bits."""
PACKED_ELEMENTS = 128
"""Elements of formats below 8 bits that TMA moves as one: rows and boxes are multiples of it."""
MAX_STRIDE_BYTES = 1 << 40


def tensor_map(problem: Gemm, operand: str, box: tuple[int, int], swizzle: str) -> TensorMap:
    """The map of operand a, b or d, columns first; an unused one if the operand is empty."""
    rows, columns = getattr(problem, f"{operand}_shape")
    kind = dtype(getattr(problem, operand))
    if not rows or not columns:
        return TensorMap(None)
    return TensorMap(
        buffer=operand,
        element_type=kind.tensor_map_type,
        dims=(columns, rows),
        strides_bytes=(kind.packed_bytes(problem.stride(operand)),),
        box=box,
        swizzle=swizzle,
        l2_promotion="none" if operand == "d" else "256B",
    )


def byte_map(problem: Gemm, operand: str, box: tuple[int, int], swizzle: str) -> TensorMap:
    """The map of a K-major A or B of 4-bit elements as bytes, two elements in each."""
    rows, columns = getattr(problem, f"{operand}_shape")
    if not rows or not columns:
        return TensorMap(None)
    kind = dtype(getattr(problem, operand))
    return TensorMap(
        buffer=operand,
        element_type="uint8",
        dims=(kind.packed_bytes(columns), rows),
        strides_bytes=(kind.packed_bytes(problem.stride(operand)),),
        box=box,
        swizzle=swizzle,
        l2_promotion="256B",
    )


def check_byte_operand(problem: Gemm, operand: str) -> None:
    """Refuse an A or B of 4-bit elements that TMA cannot address as bytes.

    Raises: ConfigError with the rule and the remedy.
    """
    kind, name = dtype(getattr(problem, operand)), operand.upper()
    if not problem.k or not problem.extent_bytes(operand):
        return
    alignment = getattr(problem, f"{operand}_alignment")
    if alignment % TMA_BYTES:
        raise ConfigError(
            f"{name} starts at an address that is a multiple of {alignment} bytes only; TMA needs "
            f"a multiple of {TMA_BYTES}; try a copy of {name}"
        )
    step = 8 * TMA_BYTES // kind.bits
    stride, columns = problem.stride(operand), getattr(problem, f"{operand}_shape")[1]
    if columns % 2:
        raise ConfigError(
            f"{name} has rows of {columns} elements of {kind}, two to a byte; k must be even; try "
            f"both operands with zeros appended up to k={columns + 1}"
        )
    if stride % step:
        raise ConfigError(
            f"{name} has a row stride of {stride} elements = {stride / 2:g} bytes; TMA needs a "
            f"multiple of {TMA_BYTES} bytes; try a padded copy with a row stride of "
            f"{align_up(stride, step)} elements"
        )


def check_operand(problem: Gemm, operand: str) -> None:
    """Refuse an A or B that TMA cannot address.

    Raises: ConfigError with the rule and the remedy.
    """
    kind = dtype(getattr(problem, operand))
    name, stride = operand.upper(), problem.stride(operand)
    if not problem.k or not problem.extent_bytes(operand):
        return
    unit = PACKED_BYTES if kind.is_packed else TMA_BYTES
    alignment = getattr(problem, f"{operand}_alignment")
    if alignment % unit:
        raise ConfigError(
            f"{name} starts at an address that is a multiple of {alignment} bytes only; TMA needs "
            f"a multiple of {unit}; try a copy of {name}"
        )
    step = PACKED_ELEMENTS if kind.is_packed else unit // kind.bytes
    columns = getattr(problem, f"{operand}_shape")[1]
    if kind.is_packed and columns % step:
        raise ConfigError(
            f"{name} has rows of {columns} elements of {kind}; TMA needs a multiple of {step}; try "
            f"both operands with zeros appended up to k={align_up(columns, step)}"
        )
    if stride * kind.bits % (8 * unit):
        raise ConfigError(
            f"{name} has a row stride of {stride} elements = {stride * kind.bits / 8:g} bytes; TMA "
            f"needs a multiple of {unit} bytes; try a padded copy with a row stride of "
            f"{align_up(stride, step)} elements"
        )
    if kind.packed_bytes(stride) >= MAX_STRIDE_BYTES:
        stride_bytes = kind.packed_bytes(stride)
        raise ConfigError(
            f"{name} has a row stride of {stride_bytes} bytes; TMA needs less than 2^40"
        )


def d_fits_tma(problem: Gemm) -> bool:
    """Whether TMA can store D: base, row stride and row length are multiples of 16 bytes.

    The row length, because a TMA store clips at whole 16 bytes and would write behind the row.
    """
    element_bytes = dtype(problem.d).bytes
    in_bytes = (problem.d_alignment, problem.stride("d") * element_bytes, problem.n * element_bytes)
    return not any(x % TMA_BYTES for x in in_bytes)


def check_d_fits_tma(problem: Gemm) -> None:
    """Refuse a D that TMA cannot store.

    Raises: ConfigError.
    """
    if problem.m and problem.n and not d_fits_tma(problem):
        element_bytes = dtype(problem.d).bytes
        raise ConfigError(
            f"store=tma needs D at a multiple of 16 bytes, with a row stride and a row length of "
            f"multiples of 16 bytes (a TMA store clips at whole 16 bytes), got an alignment of "
            f"{problem.d_alignment}, a stride of {problem.stride('d') * element_bytes} and a row "
            f"of {problem.n * element_bytes} bytes; try store=global"
        )

"""What TMA asks of the matrices of a problem, dense or grouped, and their tensor maps.

Source: CUDA driver API, "Tensor Map Object Management"; PTX ISA 9.0, "Tensors".
"""

from dataclasses import replace
from math import gcd

from ptxgen.arch import SECTOR_BYTES
from ptxgen.dtypes import Dtype, dtype
from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.launch import Param, TensorMap
from ptxgen.layout import DStaging, align_up
from ptxgen.problem import Gemm
from ptxgen.tmem_chunks import SwappedStaging

TMA_BYTES = 16
"""TMA's unit for addresses and strides."""
PACKED_BYTES = 32
"""The same for formats below 8 bits."""
PACKED_ELEMENTS = 128
"""Elements of formats below 8 bits that TMA moves as one: rows and boxes are multiples of it."""
MAX_STRIDE_BYTES = 1 << 40


def tensor_map(
    problem: Gemm | GroupedGemm, operand: str, box: tuple[int, int], swizzle: str
) -> TensorMap:
    """The map of operand a, b or d: column, row and, if the problem is grouped, matrix.

    An unused one if the operand is empty.
    """
    *matrices, rows, columns = getattr(problem, f"{operand}_shape")
    kind = dtype(getattr(problem, operand))
    if not rows or not columns:
        return TensorMap(None)
    strides = _strides(problem, operand)
    row_bytes = kind.packed_bytes(strides["row stride"])
    # A single matrix has no stride, and any legal one will do.
    group_bytes = kind.packed_bytes(strides.get("group stride", strides["row stride"]))
    return TensorMap(
        buffer=operand,
        element_type=kind.tensor_map_type,
        dims=(columns, rows, *matrices),
        strides_bytes=(row_bytes, group_bytes) if matrices else (row_bytes,),
        box=(*box, *(1 for _ in matrices)),
        swizzle=swizzle,
        l2_promotion=_l2_promotion(operand, row_bytes),
    )


def _l2_promotion(operand: str, row_bytes: int) -> str:
    """How much the L2 fetches for a load: less where rows start within a sector. Measured on an
    H200: 4096x7168x7184 in FP8 takes 470 us with 256B, 392 with 128B; 7200 takes 314 with 256B.
    """
    if operand == "d":
        return "none"
    return "128B" if row_bytes % SECTOR_BYTES else "256B"


def d_map_params(problem: Gemm | GroupedGemm, staging: DStaging | SwappedStaging) -> list[Param]:
    """The tensor maps that store D by way of `staging`, as parameters."""
    return [
        Param(m.name, "tensor_map", tensor_map(problem, "d", staging.box(m), staging.swizzle))
        for m in staging.maps
    ]


def byte_map(problem: Gemm, operand: str, box: tuple[int, int], swizzle: str) -> TensorMap:
    """The map of a K-major A or B of 4-bit elements as bytes, two elements in each."""
    elements = tensor_map(problem, operand, box, swizzle)
    if elements.buffer is None:
        return elements
    columns, rows = elements.dims
    packed = dtype(getattr(problem, operand)).packed_bytes(columns)
    return replace(elements, element_type="uint8", dims=(packed, rows))


def check_operands_fit(problem: Gemm | GroupedGemm, as_bytes: bool = False) -> None:
    """Refuse A and B that TMA cannot address. as_bytes: 4-bit elements travel as bytes.

    Lengths of rows first: the remedy, zeros along K, changes strides, too.

    Raises: ConfigError with the rule and the remedy.
    """
    used = [x for x in ("a", "b") if problem.k and problem.extent_bytes(x)]
    for operand in used:
        _check_row(problem, operand, as_bytes)
    for operand in used:
        kind = dtype(getattr(problem, operand))
        unpacks = kind.is_packed and not as_bytes
        _check_addresses(problem, operand, kind, PACKED_BYTES if unpacks else TMA_BYTES)


def _check_row(problem: Gemm | GroupedGemm, operand: str, as_bytes: bool) -> None:
    """Refuse rows of formats below 8 bits whose length TMA cannot take."""
    kind, columns = dtype(getattr(problem, operand)), getattr(problem, f"{operand}_shape")[-1]
    if not kind.is_packed:
        return
    step = 8 // kind.bits if as_bytes else PACKED_ELEMENTS
    if columns % step:
        whole = max(step, 8 * TMA_BYTES // kind.bits)  # rows without gaps are multiples, too
        raise ConfigError(
            f"{operand.upper()} has rows of {columns} elements of {kind}; TMA needs a multiple of "
            f"{step}; try both operands with zeros appended up to k={align_up(columns, whole)}"
        )


def _strides(problem: Gemm | GroupedGemm, operand: str) -> dict[str, int]:
    """Elements from one row to the next and, if there are more, from one matrix to the next."""
    strides = {"row stride": problem.stride(operand)}
    if isinstance(problem, GroupedGemm) and getattr(problem, f"{operand}_shape")[0] > 1:
        strides["group stride"] = problem.group_stride(operand)
    return strides


def _check_addresses(
    problem: Gemm | GroupedGemm, operand: str, kind: Dtype, unit_bytes: int
) -> None:
    """Refuse a start or a stride that is no multiple of `unit_bytes`, or too long a stride."""
    name, alignment = operand.upper(), getattr(problem, f"{operand}_alignment")
    if alignment % unit_bytes:
        raise ConfigError(
            f"{name} starts at an address that is a multiple of {alignment} bytes only; TMA needs "
            f"a multiple of {unit_bytes}; try a copy of {name}"
        )
    step = 8 * unit_bytes // gcd(8 * unit_bytes, kind.bits)
    for what, stride in _strides(problem, operand).items():
        if stride % step:
            raise ConfigError(
                f"{name} has a {what} of {stride} elements = {stride * kind.bits / 8:.14g} bytes; "
                f"TMA needs a multiple of {unit_bytes} bytes; try a padded copy with a {what} of "
                f"{align_up(stride, step)} elements"
            )
        if kind.packed_bytes(stride) >= MAX_STRIDE_BYTES:
            raise ConfigError(
                f"{name} has a {what} of {kind.packed_bytes(stride)} bytes; TMA needs less than "
                "2^40; try a smaller stride"
            )


def with_rows(problem: Gemm, m: int) -> Gemm:
    """The problem with another m. An A stored [K,M] then has another stride, of whole sectors; or,
    as it decides which kernel loads A, one that TMA cannot step if it cannot step A's."""
    if problem.layout[0] == "n":
        return replace(problem, m=m)
    unit = 8 * TMA_BYTES // dtype(problem.a).bits
    sector = 8 * SECTOR_BYTES // dtype(problem.a).bits
    stride = align_up(m, sector) + problem.stride("a") % unit
    return replace(problem, m=m, a_stride=stride)


def d_fits_tma(problem: Gemm | GroupedGemm) -> bool:
    """Whether TMA can store D: base, strides and row length are multiples of 16 bytes.

    The row length, because a TMA store clips at whole 16 bytes: with N = 63 bf16 it wrote two bytes
    of the gap behind each row. Measured on an H200 (tests/test_gemm_sm90.py has the case).
    """
    lengths = (*_strides(problem, "d").values(), problem.d_shape[-1])
    in_bytes = [dtype(problem.d).bytes * length for length in lengths]
    return not any(x % TMA_BYTES for x in (problem.d_alignment, *in_bytes))


def check_d_fits_tma(problem: Gemm | GroupedGemm, store: str) -> None:
    """Refuse a way to store D by TMA if that cannot store it.

    Raises: ConfigError.
    """
    if store.endswith("global") or not problem.m or not problem.n or d_fits_tma(problem):
        return
    element_bytes = dtype(problem.d).bytes
    strides = ", ".join(
        f"a {what} of {stride * element_bytes}" for what, stride in _strides(problem, "d").items()
    )
    raise ConfigError(
        f"store={store} needs D at a multiple of {TMA_BYTES} bytes, with strides and a row length "
        f"of multiples of {TMA_BYTES} bytes (a TMA store clips at whole {TMA_BYTES} bytes), got an "
        f"alignment of {problem.d_alignment}, {strides} and a row of "
        f"{problem.d_shape[-1] * element_bytes} bytes; try store=global"
    )

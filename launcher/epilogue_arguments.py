"""Checks of what `gemm` is given for its epilogue: C, bias, amax and scales of D."""

from dataclasses import dataclass, field
from typing import Any

from ptxgen.epilogue import ADDENDS, D_SCALE_BLOCK, Epilogue, columns_of_d
from ptxgen.errors import ArgumentError, ProblemError, not_one_of
from ptxgen.launcher.arrays import Operand, as_operand
from ptxgen.launcher.gemm_arguments import Matrix, read_matrix, real_number

_F32_BYTES = 4


@dataclass(frozen=True)
class EpilogueOperands:
    """What the arguments of an epilogue come down to."""

    epilogue: Epilogue
    c: Matrix | None = None
    inputs: dict[str, Operand] = field(default_factory=dict)
    """Dense arrays that the kernel reads, by the name of their buffer."""
    outputs: dict[str, Operand] = field(default_factory=dict)
    """Arrays that it writes beside D."""


def read_epilogue(
    sizes: tuple[int, int], stream: int, *, c: Any, beta: float | None, bias: Any, activation: str,
    amax: Any, d_scale: Any, d_scales: Any,
) -> EpilogueOperands:  # fmt: skip
    """The epilogue of a problem of `sizes` (M, N), and its arrays.

    Raises: ArgumentError.
    """
    m, n = sizes
    fields: dict[str, Any] = {"activation": activation}
    inputs: dict[str, Operand] = {}
    outputs: dict[str, Operand] = {}
    matrix = None
    if c is None and beta is not None:
        raise ArgumentError(f"beta={beta} is the factor of c, which is not given; try c=")
    if c is not None and beta != 0:
        matrix = _read_c(as_operand(c, "c", stream), (m, n))
        fields |= {
            "c": matrix.dtype, "beta": 1.0 if beta is None else real_number("beta", beta),
            "c_stride": matrix.stride, "c_alignment": matrix.alignment,
        }  # fmt: skip
    if bias is not None:
        inputs["bias"] = as_operand(bias, "bias", stream)
        fields |= {"bias": _bias_kind(inputs["bias"], m, n), "bias_dtype": inputs["bias"].dtype}
    if d_scale is not None and d_scales is not None:
        raise ArgumentError(
            "d_scale is given to the kernel and d_scales written by it; must be one of them; try "
            "d_scales=None"
        )
    if amax is not None:
        outputs["amax"] = as_operand(amax, "amax", stream)
        _check_one(outputs["amax"], "amax")
        fields["amax"] = True
    if d_scale is not None:
        inputs["d_scale"] = as_operand(d_scale, "d_scale", stream)
        _check_one(inputs["d_scale"], "d_scale")
        fields["d_scale"] = "tensor"
    try:
        if d_scales is not None:
            outputs["d_scale"] = x = as_operand(d_scales, "d_scales", stream)
            columns = columns_of_d(Epilogue(activation=activation), n)
            fields["d_scale"] = "group"
            fields["d_scale_strides"] = _scale_strides(x, (m, -(-columns // D_SCALE_BLOCK)))
        epilogue = Epilogue(**fields)
    except ProblemError as error:
        raise ArgumentError(str(error)) from error
    for name, x in outputs.items():
        if x.readonly:
            raise ArgumentError(f"{name}: must be writable, got a read-only array; try a copy")
    return EpilogueOperands(epilogue, matrix, inputs, outputs)


def _read_c(x: Operand, shape: tuple[int, int]) -> Matrix:
    if x.dtype not in ADDENDS:
        raise ArgumentError(not_one_of("c: dtype", x.dtype, ADDENDS))
    matrix = read_matrix(x, "c", "[M,N]")
    if x.shape != shape:
        raise ArgumentError(
            f"c: shape must be [M,N] = {shape}, got {x.shape}; try a view or copy of it"
        )
    return matrix


def _bias_kind(x: Operand, m: int, n: int) -> str:
    """column or row, by the shape: [N] or [1,N], or [M,1]."""
    if x.dtype not in ADDENDS:
        raise ArgumentError(not_one_of("bias: dtype", x.dtype, ADDENDS))
    kinds = {(n,): "column", (1, n): "column", (m, 1): "row"}
    if x.shape not in kinds:
        raise ArgumentError(
            f"bias: shape must be [N] = ({n},) for columns, or [M,1] = ({m}, 1) for rows, got "
            f"{x.shape}; try reshape"
        )
    steps = [s for e, s in zip(x.shape, x.strides_bytes, strict=True) if e != 1]
    if x.size > 1 and steps != [x.itemsize]:
        raise ArgumentError(
            f"bias: must be contiguous, got a stride of {steps[0]} bytes; try a copy"
        )
    return kinds[x.shape]


def _check_one(x: Operand, name: str) -> None:
    if x.dtype != "f32" or x.size != 1:
        raise ArgumentError(
            f"{name}: must be an array of one float32, got shape {x.shape} of {x.dtype}; "
            "try numpy.zeros(1, numpy.float32)"
        )


def _scale_strides(x: Operand, shape: tuple[int, int]) -> tuple[int, int]:
    """Elements from one row of d_scales to the next, and from one block to the next."""
    if x.dtype != "f32" or x.shape != shape:
        turned = x.shape == shape[::-1] and x.dtype == "f32"
        hint = "d_scales.T" if turned else f"numpy.empty({shape}, numpy.float32)"
        raise ArgumentError(
            f"d_scales: must be float32 of shape [M, ceil(columns of D / {D_SCALE_BLOCK})] = "
            f"{shape}, got shape {x.shape} of {x.dtype}; try {hint}"
        )
    if x.host is not None or not x.size:
        return 0, 0  # it is copied from dense rows
    for axis, (extent, stride) in enumerate(zip(x.shape, x.strides_bytes, strict=True)):
        if extent > 1 and (stride <= 0 or stride % _F32_BYTES):
            raise ArgumentError(
                f"d_scales: stride of axis {axis} must be a positive multiple of 4 bytes, got "
                f"{stride} bytes; try a new array"
            )
    row, block = x.strides_bytes
    return max(row // _F32_BYTES, 1), max(block // _F32_BYTES, 1)

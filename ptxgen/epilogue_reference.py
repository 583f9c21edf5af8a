"""What an epilogue makes of sums, by numpy: in float64, and as the kernels compute it."""

import math
from typing import Any

import numpy as np

from ptxgen.epilogue import D_SCALE_BLOCK, GATE_COLUMNS, Epilogue

Array = np.ndarray[Any, Any]

GAIN = {"none": 1.0, "gelu": 1.13, "gelu_tanh": 1.13, "silu": 1.1, "swiglu": 1.1}
"""Largest slope of each activation, rounded up: what an error before it may grow to."""
LARGEST_POWER = 88.0
"""exp of less than minus this is no normal float32."""
_erfc: Any = np.vectorize(math.erfc, otypes=[np.float64])


def source_columns(epilogue: Epilogue, columns: Array) -> tuple[Array, ...]:
    """The columns of N that the given columns of D are made of: themselves, or gates and values."""
    if not epilogue.gated:
        return (columns,)
    gates = columns // GATE_COLUMNS * (2 * GATE_COLUMNS) + columns % GATE_COLUMNS
    return gates, gates + GATE_COLUMNS


def activate(name: str, x: Array) -> Array:
    """The activation of float64 values; of the gates, if gated."""
    with np.errstate(over="ignore"):
        if name == "gelu":
            return np.asarray(x * 0.5 * _erfc(-x / math.sqrt(2.0))) if x.size else x
        if name == "gelu_tanh":
            return np.asarray(x / (1.0 + np.exp(-2.0 * _half_logit(x))))
        if name in ("silu", "swiglu"):
            return np.asarray(x / (1.0 + np.exp(-x)))
    return x


def _half_logit(x: Array) -> Array:
    """u of gelu_tanh = x * sigmoid(2 u)."""
    return np.asarray(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


def activation_error(name: str, x: Array, result: Array) -> Array:
    """How far the kernels' float32 activation of x may lie from `result`, the float64 one.

    They use ex2.approx (2 ulp) and rcp.approx (1 ulp), and the float32 exponent errs by its own
    rounding: a share 2^-23 for each unit of the power. Source: PTX ISA 9.0, "ex2", "rcp".
    """
    if name == "none":
        return np.zeros_like(result)
    power = np.abs(x)
    if name == "gelu":
        power = 0.5 * x * x
    elif name == "gelu_tanh":
        power = np.abs(2 * _half_logit(x))
    share = (8 + 2 * np.minimum(power, LARGEST_POWER)) * 2.0**-23
    return np.asarray(share * np.abs(result) + 2.0**-118)


def values_of_d(epilogue: Epilogue, x: Array, c: Any = None, bias: Any = None) -> Array:
    """All of D before it is quantised, in float64, from x [M,N]: the scaled sums times alpha."""
    if c is not None:
        x = x + np.asarray(c).astype(np.float64) * epilogue.beta
    if bias is not None:
        x = x + _along(epilogue, np.asarray(bias).astype(np.float64))
    if not epilogue.gated:
        return activate(epilogue.activation, x)
    gates, values = source_columns(epilogue, np.arange(x.shape[1] // 2))
    return np.asarray(activate(epilogue.activation, x[:, gates]) * x[:, values])


def _along(epilogue: Epilogue, bias: Array) -> Array:
    return bias[None, :] if epilogue.bias == "column" else bias[:, None]


def add_terms(epilogue: Epilogue, x: Array, c: Array | None, bias: Array | None) -> Array:
    """x + beta * C + bias of float32 values, with the kernels' roundings; c and bias belong to x's
    rows and columns."""
    if c is not None:
        beta = np.broadcast_to(np.float32(epilogue.beta), c.shape)
        x = fused_multiply_add(c.astype(np.float32), beta, x)
    if bias is not None:
        x = x + _along(epilogue, bias.astype(np.float32))
    return x


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float32 with one rounding.

    The product is exact in float64; the sum's rounding error decides ties by rounding to odd.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    rest = total - product
    error = (product - (total - rest)) + (addend - rest)
    bits = total.view(np.int64)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where((error != 0) & (bits % 2 == 0), bits + toward, bits).view(np.float64)
    return np.asarray(np.where(np.isfinite(total), odd, total).astype(np.float32))


def row_scales(values: Array) -> Array:
    """float32 scales [rows, blocks of 128 columns] of values of D, as the kernels make them."""
    rows, columns = values.shape
    padded = np.pad(np.abs(values), ((0, 0), (0, -columns % D_SCALE_BLOCK)))
    amax = padded.reshape(rows, padded.shape[1] // D_SCALE_BLOCK, D_SCALE_BLOCK).max(2, initial=0)
    scales = amax.astype(np.float32) / np.float32(448.0)
    return np.where(scales < np.finfo(np.float32).smallest_normal, np.float32(1), scales)

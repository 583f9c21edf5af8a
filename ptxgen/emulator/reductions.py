"""Element-wise operations of atom, red, cp.reduce.async.bulk and red.async.

Source: PTX ISA 9.0, "atom" and "cp.reduce.async.bulk".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.formats import bf16_to_f32, f32_to_bf16
from ptxgen.errors import EmulationError

_NUMPY: dict[str, Any] = {
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64, "s64": np.int64,
    "b64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "b16": np.uint16, "u16": np.uint16,
}  # fmt: skip


def reduce_values(
    operation: str, kind: str, old: NDArray[Any], new: NDArray[Any], *, flush: bool = True
) -> NDArray[np.uint8]:
    """`old` combined with `new`, both as bytes of elements of type `kind`.

    `operation`: add, min, max, inc, dec, and, or, xor, exch. `kind`: u32, s32, u64, s64, b32, b64,
    f16, bf16, f16x2, bf16x2, f32, f64. `flush`: f32 add flushes subnormal inputs and results, as
    atom and red do in global memory and tensor copies of float32_ftz. NaN results are canonical.
    All measured on an H200.
    Raises: EmulationError for a pair that PTX does not have.
    """
    kind = kind.removesuffix("x2")
    if kind == "bf16":
        a, b = bf16_to_f32(_as(old, np.uint16)), bf16_to_f32(_as(new, np.uint16))
        return f32_to_bf16(np.asarray(_combine(operation, kind, a, b, flush), np.float32)).view(
            np.uint8
        )
    dtype = _NUMPY.get(kind)
    if dtype is None:
        raise EmulationError(f"no reduction {operation} on elements of type {kind}")
    combined = _combine(operation, kind, _as(old, dtype), _as(new, dtype), flush)
    if kind in _CANONICAL and operation in ("add", "min", "max"):
        combined = np.where(np.isnan(combined), _CANONICAL[kind], combined)
    return np.ascontiguousarray(combined, dtype).view(np.uint8)


_CANONICAL: dict[str, Any] = {
    "f16": np.uint16(0x7FFF).view(np.float16), "f32": np.uint32(0x7FFFFFFF).view(np.float32),
}  # fmt: skip


def _as(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(np.uint8).view(dtype)


def _combine(
    operation: str, kind: str, a: NDArray[Any], b: NDArray[Any], flush: bool
) -> NDArray[Any]:
    floating = kind in ("f16", "bf16", "f32", "f64")
    with np.errstate(over="ignore", invalid="ignore"):
        if operation == "add":
            if kind == "f32" and flush:
                return _flush(np.asarray(_flush(a) + _flush(b)))
            return np.asarray(a + b)
        if operation in ("min", "max") and floating:
            return _extreme(operation, a, b)
        if operation == "min":
            return np.asarray(np.minimum(a, b))
        if operation == "max":
            return np.asarray(np.maximum(a, b))
    if operation == "exch":
        return b
    if not floating and kind[0] in "ub":
        one = a.dtype.type(1)
        if operation == "inc":
            return np.asarray(np.where(a >= b, a.dtype.type(0), a + one))
        if operation == "dec":
            return np.asarray(np.where((a == 0) | (a > b), b, a - one))
    if not floating:
        bitwise = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}.get(operation)
        if bitwise is not None:
            return np.asarray(bitwise(a, b))
    raise EmulationError(f"no reduction {operation} on elements of type {kind}")


def _extreme(operation: str, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """min or max of floats: -0 is below +0, NaN loses against a number."""
    found = np.minimum(a, b) if operation == "min" else np.maximum(a, b)
    # numpy's fmin and fmax keep a signaling NaN now and then.
    found = np.where(np.isnan(a), b, np.where(np.isnan(b), a, found))
    some = np.signbit(a) | np.signbit(b)
    negative = some if operation == "min" else np.signbit(a) & np.signbit(b)
    zero = found.dtype.type(0)
    return np.asarray(np.where((a == 0) & (b == 0), np.where(negative, -zero, zero), found))


def _flush(values: NDArray[Any]) -> NDArray[Any]:
    tiny = np.abs(values) < np.finfo(np.float32).tiny
    return np.asarray(np.where(tiny, np.copysign(np.float32(0), values), values))

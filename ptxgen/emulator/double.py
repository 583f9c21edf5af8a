"""f64 arithmetic in rational numbers, one lane after the other: exact, then rounded once."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ptxgen.emulator.runtime import runtime

_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "rcp": lambda a: 1 / a, "fma": lambda a, b, c: a * b + c,
    "neg": lambda a: -a, "abs": abs,
}  # fmt: skip
_LARGEST = math.nextafter(math.inf, 0.0)


def double_operation(name: str, rounding: str, *bits: Any) -> Any:
    """Patterns of the results of an operation on f64 patterns, in any rounding."""
    operands = np.broadcast_arrays(*(np.asarray(b, np.uint64).view(np.float64) for b in bits))
    flat = [x.reshape(-1).tolist() for x in operands]
    found = [_one(name, rounding, *lane) for lane in zip(*flat, strict=True)]
    patterns = np.array(found, np.float64).view(np.uint64).reshape(operands[0].shape)
    return patterns if patterns.shape else int(patterns)


@runtime
def integer_to_double(values: Any, rounding: str) -> Any:
    """Patterns of 64-bit integers rounded to f64 in any direction."""
    found = [rounded(Fraction(int(v)), rounding, 0.0) for v in np.asarray(values).reshape(-1)]
    patterns = np.array(found, np.float64).view(np.uint64).reshape(np.shape(values))
    return patterns if patterns.shape else int(patterns)


def _one(name: str, rounding: str, *x: float) -> float:
    """One lane. Zeros, infinities and NaN are numpy's, which knows their signs."""
    usual = _usual(name, *x)
    if name in ("add", "sub", "mul") and math.isnan(x[0]) and math.isnan(x[1]):
        return _nan_of(*x)
    finite = all(math.isfinite(v) for v in x)
    if not finite or math.isnan(usual) or (name in ("div", "rcp") and x[-1] == 0):
        return usual
    if name == "sqrt":
        return _root(x[0], rounding)
    exact = _EXACT[name](*(Fraction(v) for v in x))
    zero = usual if usual == 0 else 0.0
    if exact == 0 and rounding == "rm" and name in ("add", "sub", "fma"):
        addends = (x[0] * x[1] if name == "fma" else x[0], -x[-1] if name == "sub" else x[-1])
        zero = -0.0 if min(math.copysign(1, v) for v in addends) < 0 else 0.0
    return rounded(exact, rounding, zero)


@runtime
def with_chosen_nan(values: Any, a: Any, b: Any) -> Any:
    """Results of f64 operations where both operands are NaN: the NaN that the hardware takes."""
    both = np.isnan(a) & np.isnan(b)
    if not np.any(both):
        return values
    pairs = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    chosen = [_nan_of(*pair) for pair in zip(*(p.reshape(-1).tolist() for p in pairs), strict=True)]
    return np.where(both, np.array(chosen).reshape(pairs[0].shape), values)


def _nan_of(first: float, second: float) -> float:
    """What two NaN give: the signaling one, else the first (measured with two pairs only)."""
    patterns = [int(np.float64(v).view(np.uint64)) for v in (first, second)]
    quiet = 1 << 51
    chosen = patterns[1] if patterns[0] & quiet and not patterns[1] & quiet else patterns[0]
    return float(np.uint64(chosen | quiet).view(np.float64))


def _usual(name: str, *x: float) -> float:
    """The operation rounded to nearest, possibly twice."""
    with np.errstate(all="ignore"):
        a, *rest = (np.float64(v) for v in x)
        if name == "fma":
            if math.isfinite(x[0]) and math.isfinite(x[1]) and math.isinf(x[2]):
                return x[2]  # the product is not rounded, so it cannot be infinite
            return float(a * rest[0] + rest[1])
        if name == "sqrt":
            return float(np.sqrt(a))
        b = rest[0] if rest else a
        found = {
            "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: a / b,
            "rcp": lambda: 1 / a, "neg": lambda: -a, "abs": lambda: abs(a),
        }[name]()  # fmt: skip
        return float(found)


def _root(x: float, rounding: str) -> float:
    root = math.sqrt(x)
    square = Fraction(root) ** 2
    if rounding in ("rz", "rm") and square > Fraction(x):
        return math.nextafter(root, 0.0)
    if rounding == "rp" and square < Fraction(x):
        return math.nextafter(root, math.inf)
    return root


def rounded(exact: Fraction, rounding: str, zero: float) -> float:
    """A rational number as f64; `zero` is what 0 becomes."""
    if exact == 0:
        return zero
    inward = rounding == "rz" or rounding == ("rm" if exact > 0 else "rp")
    sign = 1.0 if exact > 0 else -1.0
    try:
        nearest = float(abs(exact))
    except OverflowError:
        nearest = math.inf
    if rounding != "rn":
        above = nearest == math.inf or Fraction(nearest) > abs(exact)
        if inward and above:
            nearest = _LARGEST if nearest == math.inf else math.nextafter(nearest, 0.0)
        elif not inward and not above and Fraction(nearest) != abs(exact):
            nearest = math.nextafter(nearest, math.inf)
    return sign * nearest

"""Operands of matrix instructions for the hardware cases: kinds of data that test arithmetic."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

KINDS = ("normal", "wide", "bits", "small")
"""normal: N(0, 1). wide: all exponents, finite. bits: any bits, NaN and infinities among them.
small: subnormals and values near them."""

FORMATS: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f64": np.float64,
}  # fmt: skip
_EXPONENTS = {"f32": 60, "tf32": 60, "f16": 14, "bf16": 60, "e4m3": 7, "e5m2": 14, "f64": 200}
"""Largest power of two of the wide values, so that products and sums mostly stay finite."""
_SMALLEST = {"f32": -149, "tf32": -136, "f16": -24, "bf16": -133, "e4m3": -9, "e5m2": -16,
             "f64": -1074}  # fmt: skip
_SIZES = {"f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "f64": 8, "s32": 4}


def image(type_name: str, kind: str, nbytes: int, seed: int) -> NDArray[np.uint8]:
    """`nbytes` bytes of values of one kind."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    if type_name not in _EXPONENTS or kind == "bits":
        found: NDArray[np.uint8] = rng.integers(0, 256, nbytes, np.uint8)
        return found
    count = nbytes // _SIZES[type_name]
    make: dict[str, Callable[[], NDArray[np.float64]]] = {
        "normal": lambda: rng.standard_normal(count),
        "wide": lambda: np.ldexp(
            rng.uniform(1, 2, count) * rng.choice([-1.0, 1.0], count),
            rng.integers(-_EXPONENTS[type_name], _EXPONENTS[type_name], count),
        ),
        "small": lambda: np.ldexp(
            rng.uniform(-8, 8, count), _SMALLEST[type_name] + rng.integers(0, 6, count)
        ),
    }
    values = make[kind]()
    if type_name == "tf32":
        # The low 13 bits are ignored: they are random.
        words = values.astype(np.float32).view(np.uint32)
        noisy: NDArray[np.uint8] = (words ^ rng.integers(0, 1 << 13, count, np.uint32)).view("u1")
        return noisy
    raw: NDArray[np.uint8] = values.astype(FORMATS[type_name]).view(np.uint8)
    return raw

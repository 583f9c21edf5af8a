"""Names that generated code may use."""

import builtins
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ptxgen.emulator import lanes as lane_arithmetic

_F = TypeVar("_F", bound=Callable[..., Any])

RUNTIME: dict[str, Any] = {
    "__builtins__": builtins,
    "np": np,
    "NAN": float("nan"),
    "INF": float("inf"),
    **{k: v for k, v in vars(lane_arithmetic).items() if not k.startswith("_")},
    "LANEMASK_EQ": np.array([1 << i for i in range(32)], np.uint32),
    "LANEMASK_LT": np.array([(1 << i) - 1 for i in range(32)], np.uint32),
    "LANEMASK_LE": np.array([(2 << i) - 1 for i in range(32)], np.uint32),
    "LANEMASK_GT": np.array([0xFFFFFFFF & -(2 << i) for i in range(32)], np.uint32),
    "LANEMASK_GE": np.array([0xFFFFFFFF & -(1 << i) for i in range(32)], np.uint32),
}
"""Name -> object, the globals of every version."""


def runtime(function: _F) -> _F:
    """Make a function known to generated code under its own name."""
    RUNTIME[function.__name__] = function
    return function


_static: dict[Any, str] = {}


def static(value: Any) -> str:
    """A name under which generated code finds a (hashable) object that the PTX text fixes."""
    name = _static.get(value)
    if name is None:
        name = _static[value] = f"K{len(_static)}"
        RUNTIME[name] = value
    return name

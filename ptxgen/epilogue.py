"""Epilogue: what becomes of a GEMM's sums before they are stored as D."""

import math
from dataclasses import dataclass, fields
from numbers import Real

from ptxgen.dtypes import dtype
from ptxgen.errors import ProblemError, is_one_of, not_one_of

ACTIVATIONS = ("none", "gelu", "gelu_tanh", "silu", "swiglu")
BIASES = ("none", "column", "row")
D_SCALES = ("none", "tensor", "group")
GATED = ("swiglu",)
"""Activations of pairs of columns: D has half as many."""
GATE_COLUMNS = 8
"""Columns of gates and columns of what they open lie in turns of this many."""
D_SCALE_BLOCK = 128
"""Columns of D that share one scale, if grouped."""
ADDENDS = ("bf16", "f16", "f32")
"""Formats of C and of a bias."""


@dataclass(frozen=True)
class Epilogue:
    """D = quantised(activation(x + beta * C + bias)), x the scaled sums times alpha, in float32.

    activation: gelu is x * Phi(x), exact; gelu_tanh its tanh approximation; silu is x * sigmoid(x).
    swiglu: columns of N come in turns, 8 gates g and 8 values u (see `interleave_halves`), and D,
    which has N / 2 columns, is silu(g) * u. A bias is added before, to both.
    """

    c: str = "none"
    """dtype of C, shape [M,N]; or none."""
    beta: float = 1.0
    """Factor of C. 1 makes C a residual."""
    c_stride: int = 0
    """Elements from one row of C to the next; 0 = dense."""
    c_alignment: int = 256
    """Largest power of two, up to 256, that divides the byte address of C."""
    bias: str = "none"
    """none, column (one for each of N) or row (one for each of M)."""
    bias_dtype: str = "f32"
    activation: str = "none"
    amax: bool = False
    """Whether one float32 is raised to the largest magnitude of D, as it is before d_scale."""
    d_scale: str = "none"
    """What D must be multiplied with. tensor: one float32 that is given; group: one for each row
    and 128 columns, made of the largest magnitude among them and written beside D."""
    d_scale_strides: tuple[int, int] = (0, 0)
    """group: elements of d_scale from one row to the next, and from one block of columns to the
    next. (0, 0) = dense rows."""

    def __post_init__(self) -> None:
        """Check the epilogue alone.

        Raises: ProblemError.
        """
        for name, allowed in (
            ("c", ("none", *ADDENDS)),
            ("bias", BIASES),
            ("bias_dtype", ADDENDS),
            ("activation", ACTIVATIONS),
            ("d_scale", D_SCALES),
        ):
            if not is_one_of(getattr(self, name), allowed):
                raise ProblemError(not_one_of(name, getattr(self, name), allowed))
        if isinstance(self.beta, bool) or not isinstance(self.beta, Real):
            raise ProblemError(f"beta must be a real number, got {self.beta!r}; try 1.0")
        if not math.isfinite(self.beta) or abs(self.beta) > 3.4e38:
            raise ProblemError(f"beta={self.beta} must be a finite float32; try a smaller one")
        if self.c != "none" and self.gated:
            raise ProblemError(
                f"c={self.c} with activation={self.activation}: C is added before the activation, "
                "where there are twice as many columns; try without C"
            )
        if self.bias == "none" and self.bias_dtype != "f32":
            object.__setattr__(self, "bias_dtype", "f32")

    def __str__(self) -> str:
        """What is not as by default, such as "bias=column, amax=True"."""
        given = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return ", ".join(f"{name}={value}" for name, value, default in given if value != default)

    @property
    def gated(self) -> bool:
        """Whether two columns of N make one of D."""
        return self.activation in GATED

    @property
    def is_exact(self) -> bool:
        """Whether every operation is a single float32 one that numpy rounds alike."""
        return self.activation == "none"

    def check_d(self, d: str, n: int) -> None:
        """Refuse what does not go with D's format and the problem's n.

        Raises: ProblemError.
        """
        if self.gated and n % (2 * GATE_COLUMNS):
            raise ProblemError(
                f"n={n} with activation={self.activation} must be a multiple of "
                f"{2 * GATE_COLUMNS}: {GATE_COLUMNS} gates and {GATE_COLUMNS} values in turns; "
                f"try n={n + -n % (2 * GATE_COLUMNS)}"
            )
        if self.d_scale != "none" and dtype(d).bytes != 1:
            raise ProblemError(f"d_scale={self.d_scale} needs an 8-bit d, got d={d}; try d=e4m3")


def columns_of_d(epilogue: Epilogue, n: int) -> int:
    """Columns of D for the problem's n."""
    return n // 2 if epilogue.gated else n

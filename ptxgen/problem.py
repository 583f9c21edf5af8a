"""Problems: what the user wants computed. A problem knows no hardware."""

import math
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from ptxgen.dtypes import dtype
from ptxgen.epilogue import D_SCALE_BLOCK, Epilogue, columns_of_d
from ptxgen.errors import ProblemError, is_one_of, not_one_of

if TYPE_CHECKING:
    import numpy as np

LAYOUTS = ("nt", "nn", "tn", "tt")
"""First letter: A is stored [M,K] (n) or [K,M] (t); second: B is stored [K,N] (n) or [N,K] (t)."""
BLOCK_SCALES = ("block", "group")
MICRO_SCALES = {"mx32": (32, "ue8m0"), "mx128": (128, "ue8m0"), "nv16": (16, "ue4m3")}
"""Scales that the Tensor Core applies -> elements along K that share one, and its format: ue8m0 is
a power of two (OCP Microscaling), ue4m3 an e4m3 without sign."""
SCALES = ("none", "tensor", "rowcol", *BLOCK_SCALES, *MICRO_SCALES)
SCALE_BLOCK = 128
"""Elements along K (and, for `block`, along N) that share one scale."""
SCALE_FORMATS = {"f32": 4, "ue8m0": 1, "ue8m0x4": 4}
"""Formats of block scales -> bytes of one element. ue8m0: powers of two, a byte each; ue8m0x4: four
of them, of blocks of K that follow each other, in one int32, the first in its low byte."""
ACCUMULATES = ("fast", "promoted")
"""See Gemm. "auto" stands for what the scale calls for: promoted for block scales, else fast."""
FP8 = ("e4m3", "e5m2")
NARROW_FLOATS = (*FP8, "e2m3", "e3m2", "e2m1")
"""Formats that mix with each other in one product."""
INTEGERS = ("s8", "u8")
PAIRS = (("bf16",), ("f16",), ("tf32",), NARROW_FLOATS, INTEGERS)
"""A and B come from one of these groups. Each kernel says which it computes."""
OUTPUTS = ("bf16", "f16", "f32", "e4m3", "s32")
"""Formats of D: s32 of integers, e4m3 of floats, and the others of both."""
PROMOTION_K = 128
"""K elements whose products are summed in the tensor core before an FP32 add, if promoted."""
MAX_EXTENT = (1 << 31) - 1
"""Most rows or columns: TMA coordinates are signed 32-bit numbers, and those of the other kernels
are unsigned ones that may pass the end by less than a tile."""
FLOAT32_MAX = (2 - 2**-23) * 2.0**127


def integer(name: str, value: object) -> int:
    """The field `name` of a problem as an int, also where numpy made it.

    Raises: ProblemError if it is no integer.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ProblemError(f"{name} must be an integer, got {value!r}; try int({name})")
    return int(value)


def accumulate_for(scale: str, accumulate: str) -> str:
    """`accumulate`, or what `scale` calls for if that is auto."""
    if accumulate != "auto":
        return accumulate
    return "promoted" if scale in BLOCK_SCALES else "fast"


@dataclass(frozen=True)
class Gemm:
    """D[M,N] = alpha * scale_a * scale_b * A[M,K] @ B[N,K]^T.

    Scales: none; tensor (scale_a and scale_b are one float32 each); rowcol (scale_a has one float32
    per row of A, scale_b one per column of D); block (scale_a one per row and 128 of K, scale_b one
    per 128 columns and 128 of K); group (both one per row or column and 128 of K). They are device
    arrays: vectors, or, for block and group, matrices [rows, ceil(K / 128)] with any two strides.
    mx32, mx128, nv16 (both one byte per row or column and 32, 128 or 16 of K; in memory they are
    packed, see ptxgen.scale_tiles). What else becomes of the sums: see Epilogue.
    """

    m: int
    n: int
    k: int
    a: str = "bf16"
    """dtype of A."""
    b: str = "bf16"
    """dtype of B."""
    d: str = "bf16"
    """dtype of D."""
    layout: str = "nt"
    """How A and B are stored, see LAYOUTS."""
    scale: str = "none"
    accumulate: str = "auto"
    """fast: the tensor core's own accumulator. promoted: FP32 sums of 128-K partial sums. auto
    becomes promoted for block and group scales, which need it, else fast."""
    a_stride: int = 0
    """Elements from one stored row of A to the next; 0 = dense. Likewise b_stride, d_stride."""
    b_stride: int = 0
    d_stride: int = 0
    a_alignment: int = 256
    """Largest power of two, up to 256, that divides the byte address of A. Likewise for B, D."""
    b_alignment: int = 256
    d_alignment: int = 256
    alpha: float = 1.0
    scale_a_strides: tuple[int, int] = (0, 0)
    """block and group: elements of scale_a from one row to the next, and from one block of K (or
    four, if ue8m0x4) to the next. (0, 0) = dense rows. Likewise scale_b_strides."""
    scale_b_strides: tuple[int, int] = (0, 0)
    scale_format: str = "f32"
    """Format of block scales, see SCALE_FORMATS."""
    epilogue: Epilogue = field(default_factory=Epilogue)

    def __post_init__(self) -> None:
        """Check the problem alone, for any kernel.

        Raises: ProblemError.
        """
        for name in ("m", "n", "k", "a_stride", "b_stride", "d_stride"):
            value = integer(name, getattr(self, name))
            object.__setattr__(self, name, value)
            if value < 0:
                raise ProblemError(f"{name} must be >= 0, got {value}; try 0")
            if value > MAX_EXTENT and not name.endswith("stride"):
                raise ProblemError(
                    f"{name}={value} must be at most {MAX_EXTENT}; try several calls"
                )
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, Real):
            raise ProblemError(f"alpha must be a real number, got {self.alpha!r}; try 1.0")
        if math.isfinite(self.alpha) and abs(self.alpha) > FLOAT32_MAX:
            raise ProblemError(
                f"alpha={self.alpha:g} (with scales that are numbers) must be at most "
                f"{FLOAT32_MAX:.8g}, as the kernels take it as float32; try a smaller one"
            )
        for name in ("a", "b", "d"):
            dtype(getattr(self, name))
        for name, allowed in (
            ("layout", LAYOUTS),
            ("scale", SCALES),
            ("scale_format", tuple(SCALE_FORMATS)),
            ("accumulate", ("auto", *ACCUMULATES)),
        ):
            if not is_one_of(getattr(self, name), allowed):
                raise ProblemError(not_one_of(name, getattr(self, name), allowed))
        object.__setattr__(self, "accumulate", accumulate_for(self.scale, self.accumulate))
        self._check_dtypes()
        self._check_micro_scales()
        if self.scale_format != "f32" and self.scale not in BLOCK_SCALES:
            raise ProblemError(
                f"scale_format={self.scale_format} is one of block scales; scale must be "
                f"{' or '.join(BLOCK_SCALES)}, got {self.scale}; try scale_format=f32"
            )
        self.epilogue.check_d(self.d, self.n)
        for name in ("scale_a", "scale_b"):
            if getattr(self, f"{name}_strides") == (0, 0):
                object.__setattr__(self, f"{name}_strides", (self._scale_words(self.k_blocks), 1))
        for name in ("a", "b", "c", "d"):
            columns = getattr(self, f"{name}_shape")[1]
            stride = getattr(self, f"{name}_stride")
            if stride and stride < columns:
                raise ProblemError(
                    f"{name}_stride={stride} must be at least the row length {columns} "
                    f"(elements from one stored row of {name.upper()} to the next); try 0, which "
                    "is dense"
                )

    def _check_dtypes(self) -> None:
        if not any(self.a in group and self.b in group for group in PAIRS):
            raise ProblemError(
                f"dtypes a={self.a}, b={self.b} must be bf16 with bf16, f16 with f16, tf32 with "
                f"tf32, any two of {', '.join(NARROW_FLOATS)}, or any two of "
                f"{', '.join(INTEGERS)}; try b={self.a}"
            )
        other = "e4m3" if self.a in INTEGERS else "s32"
        outputs = [name for name in OUTPUTS if name != other]
        if self.d not in outputs:
            raise ProblemError(not_one_of(f"d of {self.a} x {self.b}", self.d, outputs))
        changes = [f"scale={self.scale}"] if self.scale != "none" else []
        changes += [f"alpha={self.alpha}"] if self.alpha != 1.0 else []
        changes += [str(self.epilogue)] if self.epilogue != Epilogue() else []
        if self.d == "s32" and changes:
            raise ProblemError(
                f"d=s32 holds the integer sums themselves: scale must be none, alpha 1 and the "
                f"epilogue empty, got {', '.join(changes)}; try d=f32"
            )

    def _check_micro_scales(self) -> None:
        if self.scale not in MICRO_SCALES:
            return
        formats = ("e2m1",) if self.scale == "nv16" else NARROW_FLOATS
        if self.a not in formats or self.b not in formats:
            raise ProblemError(
                f"scale={self.scale} needs a and b from {', '.join(formats)}, got a={self.a} and "
                f"b={self.b}; try a={formats[0]} and b={formats[0]}"
            )

    @property
    def a_shape(self) -> tuple[int, int]:
        """Shape of A as stored."""
        return (self.m, self.k) if self.layout[0] == "n" else (self.k, self.m)

    @property
    def b_shape(self) -> tuple[int, int]:
        """Shape of B as stored."""
        return (self.n, self.k) if self.layout[1] == "t" else (self.k, self.n)

    @property
    def d_shape(self) -> tuple[int, int]:
        """Shape of D as stored."""
        return (self.m, self.d_columns)

    @property
    def d_columns(self) -> int:
        """Columns of D."""
        return columns_of_d(self.epilogue, self.n)

    @property
    def c_shape(self) -> tuple[int, int]:
        """Shape of C."""
        return (self.m, self.n)

    @property
    def c_stride(self) -> int:
        """Elements from one row of C to the next; 0 = dense."""
        return self.epilogue.c_stride

    @property
    def c(self) -> str:
        """dtype of C, or none."""
        return self.epilogue.c

    @property
    def bias_length(self) -> int:
        """Elements of the bias."""
        return {"none": 0, "column": self.n, "row": self.m}[self.epilogue.bias]

    @property
    def d_scale_shape(self) -> tuple[int, ...]:
        """Shape of the scales of D."""
        if self.epilogue.d_scale == "group":
            return (self.m, -(-self.d_columns // D_SCALE_BLOCK))
        return ({"none": 0, "tensor": 1}[self.epilogue.d_scale],)

    @property
    def d_scale_strides(self) -> tuple[int, int]:
        """Elements of d_scale from one row to the next, and from one block to the next."""
        if self.epilogue.d_scale_strides == (0, 0):
            return (-(-self.d_columns // D_SCALE_BLOCK), 1)
        return self.epilogue.d_scale_strides

    @property
    def d_scale_length(self) -> int:
        """Elements from the first to past the last scale of D."""
        shape = self.d_scale_shape
        if len(shape) == 1 or 0 in shape:
            return shape[0] if len(shape) == 1 else 0
        return sum((n - 1) * s for n, s in zip(shape, self.d_scale_strides, strict=True)) + 1

    def stride(self, operand: str) -> int:
        """Elements from one stored row of operand a, b, c or d to the next."""
        shape: tuple[int, int] = getattr(self, f"{operand}_shape")
        return int(getattr(self, f"{operand}_stride")) or shape[1]

    def extent_bytes(self, operand: str) -> int:
        """Bytes from the first to past the last element of operand a, b, c or d."""
        rows, columns = getattr(self, f"{operand}_shape")
        if not rows or not columns:
            return 0
        elements = (rows - 1) * self.stride(operand) + columns
        return dtype(getattr(self, operand)).packed_bytes(elements)

    @property
    def k_blocks(self) -> int:
        """Blocks of 128 along K."""
        return -(-self.k // SCALE_BLOCK)

    @property
    def scale_a_shape(self) -> tuple[int, ...]:
        """Shape of scale_a (float32; UE8M0, not packed, if so; bytes if micro scales)."""
        return self._scale_shape(self.m, 1)

    @property
    def scale_b_shape(self) -> tuple[int, ...]:
        """Shape of scale_b (float32; bytes if micro scales)."""
        return self._scale_shape(self.n, SCALE_BLOCK if self.scale == "block" else 1)

    def _scale_shape(self, rows: int, rows_per_scale: int) -> tuple[int, ...]:
        if self.scale in BLOCK_SCALES:
            return (-(-rows // rows_per_scale), self.k_blocks)
        if self.scale in MICRO_SCALES:
            return (rows, -(-self.k // MICRO_SCALES[self.scale][0]))
        return ({"none": 0, "tensor": 1, "rowcol": rows}[self.scale],)

    @property
    def scale_a_length(self) -> int:
        """Elements from the first to past the last of scale_a; without padding if micro scales."""
        return self._scale_length(self.scale_a_shape, self.scale_a_strides)

    @property
    def scale_b_length(self) -> int:
        """Elements from the first to past the last of scale_b; without padding if micro scales."""
        return self._scale_length(self.scale_b_shape, self.scale_b_strides)

    def _scale_length(self, shape: tuple[int, ...], strides: tuple[int, int]) -> int:
        if self.scale in MICRO_SCALES:
            return shape[0] * shape[1]
        if len(shape) == 1 or 0 in shape:
            return shape[0] if len(shape) == 1 else 0
        rows, blocks = shape
        return (rows - 1) * strides[0] + (self._scale_words(blocks) - 1) * strides[1] + 1

    def _scale_words(self, blocks: int) -> int:
        """Elements that hold the scales of so many blocks of K."""
        return -(-blocks // 4) if self.scale_format == "ue8m0x4" else blocks

    @property
    def scale_bytes(self) -> int:
        """Bytes of one element of scale_a or scale_b."""
        return 1 if self.scale in MICRO_SCALES else SCALE_FORMATS[self.scale_format]

    @property
    def flop(self) -> int:
        """Floating-point operations."""
        return 2 * self.m * self.n * self.k

    @property
    def compulsory_bytes(self) -> int:
        """Bytes moved if each operand crosses the memory bus once."""
        return (
            dtype(self.a).packed_bytes(self.m * self.k)
            + dtype(self.b).packed_bytes(self.n * self.k)
            + dtype(self.d).packed_bytes(self.m * self.d_columns)
            + (dtype(self.c).packed_bytes(self.m * self.n) if self.c != "none" else 0)
            + self.scale_bytes * (self.scale_a_length + self.scale_b_length)
        )

    def reference(
        self,
        a: Any,
        b: Any,
        scale_a: Any = None,
        scale_b: Any = None,
        c: Any = None,
        bias: Any = None,
    ) -> "np.ndarray[Any, Any]":
        """D in float64, before it is quantised to its dtype, shape of D.

        a and b: arrays of the stored shapes, c [M,N] and the vector bias, of any dtypes that
        convert to float64.
        """
        from ptxgen.reference import reference  # it needs numpy, which most commands do not

        return reference(self, a, b, scale_a, scale_b, c, bias)  # fmt: skip

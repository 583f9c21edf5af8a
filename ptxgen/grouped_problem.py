"""Grouped problems: many products of one shape, whose numbers of rows only the device knows.

A mixture of experts multiplies the tokens of each expert with that expert's weights. How many
tokens an expert has stands in an array on the device, which the kernel reads, so that a captured
CUDA graph serves any routing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ptxgen.dtypes import dtype
from ptxgen.errors import ProblemError, is_one_of, not_one_of
from ptxgen.problem import BLOCK_SCALES, SCALE_BLOCK, Gemm, accumulate_for, integer

if TYPE_CHECKING:
    import numpy as np

MODES = ("masked", "contiguous", "kgrouped", "batched")
"""masked: A [G,M,K], of which group g uses its first sizes[g] rows. contiguous: A [rows,K] holds
the groups one after another. kgrouped: A [M,K], B [N,K]; group g sums over its own part of K, into
D[g]. batched: A [G,M,K], all rows used."""
INDEXES = ("offsets", "ends", "rows")
"""How sizes describe the segments of `contiguous`. offsets: group g has rows sizes[g] to
sizes[g + 1]. ends: it ends at sizes[g] and starts at the end of the group before, rounded up to a
multiple of `alignment`. rows: row i belongs to group sizes[i], or to none if that is negative.
Sizes must be from -2^31 to 2^31 - 1 even if they are 64-bit, as kernels read their lower halves
alone: 2^31 is read as -2^31."""
MAX_GROUPS = 512
MAX_COORDINATE = 1 << 31
"""TMA coordinates are signed 32-bit."""


@dataclass(frozen=True)
class Segment:
    """A run of rows (kgrouped: of K) that belongs to one group."""

    group: int
    start: int
    """First row in A and D: of the group's own matrix (masked, batched), or of all."""
    length: int


@dataclass(frozen=True)
class GroupedGemm:
    """D_g = alpha * scale_a * scale_b * A_g @ B_g^T for every group g; B is [G,N,K].

    kgrouped: D_g += alpha * ... A[:, part g] @ B[:, part g]^T, with B [N,K] and D float32.
    Scales are those of Gemm with a group stride each: scale_a has the rows of A, scale_b is one
    matrix or vector per group. tensor: one float32 of A, and one per group of B.
    """

    mode: str
    groups: int
    m: int
    """Rows of A: of each group (masked: at most), or of all groups together (contiguous)."""
    n: int
    k: int
    """kgrouped: of all groups together."""
    a: str = "e4m3"
    b: str = "e4m3"
    d: str = "bf16"
    scale: str = "none"
    accumulate: str = "auto"
    index: str = "offsets"
    """contiguous: what sizes holds, see INDEXES."""
    alignment: int = 1
    """index=ends: segments start at multiples of this. kgrouped: all starts are multiples of it;
    TMA needs 16 bytes, and the kernel cannot check what the device counts."""
    index_bits: int = 32
    """Integers of sizes: 32 or 64 bits. Of 64 the kernel reads the lower 32."""
    a_stride: int = 0
    """Elements from one row of A to the next; 0 = dense. Likewise b_stride, d_stride."""
    b_stride: int = 0
    d_stride: int = 0
    a_group_stride: int = 0
    """Elements from one group's A to the next; 0 = dense. Likewise for B and D."""
    b_group_stride: int = 0
    d_group_stride: int = 0
    a_alignment: int = 256
    """Largest power of two, up to 256, that divides the address of A, in bytes."""
    b_alignment: int = 256
    d_alignment: int = 256
    alpha: float = 1.0
    scale_a_strides: tuple[int, int, int] = (0, 0, 0)
    """block and group: elements from one group of A to the next, from one row to the next and from
    one block of K to the next; (0, 0, 0) = dense. Likewise scale_b_strides."""
    scale_b_strides: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        """Check the problem alone, for any kernel.

        Raises: ProblemError.
        """
        for name, allowed in (("mode", MODES), ("index", INDEXES)):
            if not is_one_of(getattr(self, name), allowed):
                raise ProblemError(not_one_of(name, getattr(self, name), allowed))
        operands = (f"{x}_{k}" for k in ("stride", "group_stride", "alignment") for x in "abd")
        for name in ("groups", "alignment", "index_bits", "m", "n", "k", *operands):
            if type(getattr(self, name)) is not int:  # each call of grouped_gemm comes by here
                object.__setattr__(self, name, integer(name, getattr(self, name)))
        if self.index_bits not in (32, 64):
            raise ProblemError(not_one_of("index_bits", self.index_bits, (32, 64)))
        for name in ("scale_a_strides", "scale_b_strides"):
            strides = getattr(self, name)
            if not isinstance(strides, tuple) or strides != (0, 0, 0):
                object.__setattr__(self, name, _three_strides(name, strides))
        if not 1 <= self.groups <= MAX_GROUPS:
            hint = "try 1" if self.groups < 1 else "try several calls"
            raise ProblemError(f"groups={self.groups} must be from 1 to {MAX_GROUPS}; {hint}")
        if self.mode != "contiguous" and self.index != "offsets":
            raise ProblemError(
                f"index={self.index} must be offsets for mode={self.mode}; try mode=contiguous"
            )
        if not 1 <= self.alignment < MAX_COORDINATE:
            raise ProblemError(
                f"alignment={self.alignment} must be at least 1 and below 2^31; try 1"
            )
        for name in ("m", "n", "k"):
            if getattr(self, name) >= MAX_COORDINATE:
                raise ProblemError(
                    f"{name}={getattr(self, name)} must be below 2^31, since TMA coordinates are "
                    "32-bit; addresses are 64-bit, so strides may be larger; try several calls"
                )
        self.gemm(self.m)
        object.__setattr__(self, "accumulate", accumulate_for(self.scale, self.accumulate))
        if self.mode == "kgrouped":
            self._check_kgrouped()
        for name in ("scale_a", "scale_b"):
            if getattr(self, f"{name}_strides") == (0, 0, 0):
                object.__setattr__(self, f"{name}_strides", self._dense_scale_strides(name))
        for operand in ("a", "b", "d"):
            groups, rows, columns = getattr(self, f"{operand}_shape")
            if rows > 1 and self.stride(operand) < columns:
                raise ProblemError(
                    f"{operand}_stride={self.stride(operand)} must be at least the row length "
                    f"{columns}; try 0, which is dense"
                )
            needed = (rows - 1) * self.stride(operand) + columns
            if groups > 1 and rows and columns and self.group_stride(operand) < needed:
                raise ProblemError(
                    f"{operand}_group_stride={self.group_stride(operand)} must be at least the "
                    f"{needed} elements of one group; try 0, which is dense"
                )

    def _check_kgrouped(self) -> None:
        if self.d != "f32":
            raise ProblemError(
                f"kgrouped adds to D in float32, so d must be f32, got {self.d}; try d=f32"
            )
        if self.scale not in ("none", "group"):
            raise ProblemError(
                f"kgrouped takes scale=none or scale=group (1 x 128 on both operands), got "
                f"{self.scale}; try scale=group"
            )

    @property
    def a_groups(self) -> int:
        """Matrices that A, and D, consist of."""
        return self.groups if self.mode in ("masked", "batched") else 1

    @property
    def a_shape(self) -> tuple[int, int, int]:
        """Matrices of A, rows and columns of each."""
        return self.a_groups, self.m, self.k

    @property
    def b_shape(self) -> tuple[int, int, int]:
        """The same of B."""
        return 1 if self.mode == "kgrouped" else self.groups, self.n, self.k

    @property
    def d_shape(self) -> tuple[int, int, int]:
        """The same of D."""
        return self.groups if self.mode == "kgrouped" else self.a_groups, self.m, self.n

    def stride(self, operand: str) -> int:
        """Elements from one row of operand a, b or d to the next."""
        shape: tuple[int, int, int] = getattr(self, f"{operand}_shape")
        return int(getattr(self, f"{operand}_stride")) or shape[2]

    def group_stride(self, operand: str) -> int:
        """Elements from one group's matrix of operand a, b or d to the next."""
        shape: tuple[int, int, int] = getattr(self, f"{operand}_shape")
        return int(getattr(self, f"{operand}_group_stride")) or shape[1] * self.stride(operand)

    def extent_bytes(self, operand: str) -> int:
        """Bytes from the first to past the last element of operand a, b or d."""
        groups, rows, columns = getattr(self, f"{operand}_shape")
        if not groups or not rows or not columns:
            return 0
        strides = self.group_stride(operand), self.stride(operand)
        elements = (groups - 1) * strides[0] + (rows - 1) * strides[1] + int(columns)
        return int(elements) * dtype(getattr(self, operand)).bytes

    @property
    def has_block_gaps(self) -> bool:
        """kgrouped: whether the blocks of K of group g start at column ceil(start / 128) + g of the
        scale matrices, which needs no sum over the groups before it; else at start / 128, as all
        starts are multiples of 128 (alignment)."""
        return self.mode == "kgrouped" and self.alignment % SCALE_BLOCK != 0

    @property
    def k_blocks(self) -> int:
        """Blocks of 128 along K; kgrouped: at most, since each group starts its own."""
        blocks = -(-self.k // SCALE_BLOCK)
        return blocks + self.groups if self.has_block_gaps else blocks

    def scale_shape(self, name: str) -> tuple[int, ...]:
        """Shape of scale_a or scale_b (float32): matrices, rows, blocks of K; or what there is.

        tensor: (1,) and (groups,); rowcol: (matrices, rows).
        """
        groups, rows = getattr(self, f"{name[-1]}_shape")[:2]
        if self.scale == "none":
            return (0,)
        if self.scale == "tensor":
            return (1,) if name == "scale_a" else (self.groups,)
        if self.scale == "rowcol":
            return (groups, rows)
        wide = SCALE_BLOCK if self.scale == "block" and name == "scale_b" else 1
        return (groups, -(-rows // wide), self.k_blocks)

    def _dense_scale_strides(self, name: str) -> tuple[int, int, int]:
        shape = self.scale_shape(name)
        if len(shape) == 3:
            return (shape[1] * shape[2], shape[2], 1)
        if self.scale == "tensor":
            return (0 if name == "scale_a" else 1, 0, 0)
        return (shape[1] if len(shape) == 2 else 0, 1, 0)

    def scale_length(self, name: str) -> int:
        """Float32 elements from the first to past the last of scale_a or scale_b."""
        shape, strides = self.scale_shape(name), getattr(self, f"{name}_strides")
        if 0 in shape:
            return 0
        if self.scale == "tensor":
            return (shape[0] - 1) * int(strides[0]) + 1
        return sum((n - 1) * int(s) for n, s in zip(shape, strides, strict=False)) + 1

    @property
    def sizes_length(self) -> int:
        """Integers in the device's array of sizes; 0 if the mode needs none."""
        if self.mode == "batched":
            return 0
        if self.mode == "masked" or (self.mode == "contiguous" and self.index == "ends"):
            return self.groups
        return self.m if self.mode == "contiguous" and self.index == "rows" else self.groups + 1

    def gemm(self, rows: int) -> Gemm:
        """The dense problem of one group with `rows` rows (kgrouped: with K of `rows`).

        Raises: ProblemError.
        """
        m, k = (self.m, rows) if self.mode == "kgrouped" else (rows, self.k)
        return Gemm(
            m, self.n, k, self.a, self.b, self.d, "nt", self.scale, self.accumulate,
            alpha=self.alpha,
        )  # fmt: skip

    def with_rows(self, rows: int) -> "GroupedGemm":
        """The same with another m."""
        return replace(self, m=rows)

    def segments(self, sizes: "np.ndarray[Any, Any] | None") -> "list[Segment]":
        """The groups' rows (kgrouped: parts of K) as the kernel reads them from `sizes`.

        What lies outside the matrix is clamped: a size above m counts as m, a negative one as 0.
        Groups without rows are left out.

        Raises: ProblemError if a part of K starts where `alignment` says that none does.
        """
        from ptxgen.grouped_reference import segments  # it needs numpy, which emit does not

        return segments(self, sizes)

    def flop(self, sizes: "np.ndarray[Any, Any] | None") -> int:
        """Floating-point operations for these sizes."""
        rows = sum(s.length for s in self.segments(sizes))
        return 2 * rows * self.n * (self.m if self.mode == "kgrouped" else self.k)

    def compulsory_bytes(self, sizes: "np.ndarray[Any, Any] | None") -> int:
        """Bytes moved if everything that is used crosses the memory bus once."""
        total = sum(self.gemm(s.length).compulsory_bytes for s in self.segments(sizes))
        if self.mode == "kgrouped":  # C is read, too
            total += self.groups * self.m * self.n * dtype(self.d).bytes
        return total

    def reference(
        self, sizes: Any, a: Any, b: Any, scale_a: Any = None, scale_b: Any = None, c: Any = None
    ) -> "np.ndarray[Any, Any]":
        """D in float64, before rounding, of d_shape; NaN in rows that belong to no group.

        a, b, scale_a, scale_b: arrays of a_shape, b_shape and scale_shape. c: kgrouped: what D
        holds before; None = zeros.
        """
        from ptxgen.grouped_reference import reference

        return reference(self, sizes, a, b, scale_a, scale_b, c)


def _three_strides(name: str, value: object) -> tuple[int, ...]:
    """Strides of scales as a tuple of ints.

    Raises: ProblemError.
    """
    if not isinstance(value, tuple | list) or len(value) != 3:
        raise ProblemError(f"{name} must be three integers, got {value!r}; try (0, 0, 0)")
    strides = tuple(integer(name, stride) for stride in value)
    if min(strides) < 0:
        raise ProblemError(f"{name} must not be negative, got {strides}; try a copy")
    return strides


def group_starts(rows: Sequence[int], alignment: int) -> tuple[list[int], int]:
    """Where groups start that lie one after another at multiples of `alignment`, and the end."""
    starts, end = [], 0
    for count in rows:
        starts.append(-(-end // alignment) * alignment)
        end = starts[-1] + count
    return starts, end


def one_group(problem: "Gemm | GroupedGemm") -> GroupedGemm:
    """A dense problem as a batch of one, with the same buffers; a grouped one as it is.

    Raises: ProblemError if A or B is not K-major.
    """
    if isinstance(problem, GroupedGemm):
        return problem
    if problem.layout != "nt":
        raise ProblemError(
            f"layout={problem.layout}: kernels of groups take A [M,K] and B [N,K]; try layout=nt"
        )
    blocks = problem.scale in BLOCK_SCALES
    return GroupedGemm(
        "batched", 1, problem.m, problem.n, problem.k, problem.a, problem.b, problem.d,
        problem.scale, problem.accumulate, alpha=problem.alpha,
        a_stride=problem.a_stride, b_stride=problem.b_stride, d_stride=problem.d_stride,
        a_alignment=problem.a_alignment, b_alignment=problem.b_alignment,
        d_alignment=problem.d_alignment,
        scale_a_strides=(0, *problem.scale_a_strides) if blocks else (0, 0, 0),
        scale_b_strides=(0, *problem.scale_b_strides) if blocks else (0, 0, 0),
    )  # fmt: skip

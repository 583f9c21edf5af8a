"""sets: the named shapes and kinds of problem that are measured.

A set is a list of shapes (m, n, k); a kind says of what: formats, scales, accumulation.
"""

from dataclasses import dataclass

from ptxgen.errors import ArgumentError, not_one_of
from ptxgen.problem import BLOCK_SCALES, Gemm

Shape = tuple[int, int, int]

# (n, k) of the linear layers that DeepGEMM's tests measure.
# Source: DeepGEMM, tests/generators.py and the tables of its first README.
WEIGHTS = (
    (2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168),
    (7168, 2048),
)  # fmt: skip
TRAINING_M = 4096
DECODING_M = (1, 16, 32, 64, 128)


@dataclass(frozen=True)
class Kind:
    """What is computed: formats, scales and accumulation."""

    name: str
    a: str
    scale: str
    accumulate: str
    d: str = "bf16"

    def problem(self, shape: Shape) -> Gemm:
        """The problem of this kind with shape (m, n, k).

        Scales of A that belong to blocks of K lie with M contiguous, as DeepGEMM takes them.

        Raises: ProblemError.
        """
        m, n, k = shape
        return Gemm(
            m, n, k, self.a, self.a, self.d, "nt", self.scale, self.accumulate,
            scale_a_strides=(1, m) if self.scale in BLOCK_SCALES else (0, 0),
        )  # fmt: skip


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("fp8-tensor", "e4m3", "tensor", "fast"),
        Kind("fp8-rowcol", "e4m3", "rowcol", "fast"),
        Kind("fp8-tensor-promoted", "e4m3", "tensor", "promoted"),
        Kind("fp8-rowcol-promoted", "e4m3", "rowcol", "promoted"),
        Kind("fp8-block", "e4m3", "block", "promoted"),
        Kind("fp8-group", "e4m3", "group", "promoted"),
        Kind("bf16", "bf16", "none", "fast"),
        Kind("f16", "f16", "none", "fast", "f16"),
    )
}


@dataclass(frozen=True)
class BenchSet:
    """Shapes that are measured together."""

    name: str
    what: str
    shapes: tuple[Shape, ...]
    beside_regular: bool = False
    """Whether each shape is measured beside the next regular one."""


_TRAINING = tuple((TRAINING_M, n, k) for n, k in WEIGHTS)
_SQUARE = (
    (2048, 2048, 2048), (4096, 4096, 4096), (6144, 6144, 1280), (8192, 8192, 8192),
    (16384, 16384, 8192),
)  # fmt: skip
_SMALL = tuple((m, n, k) for m in DECODING_M for n, k in WEIGHTS)

SETS: dict[str, BenchSet] = {
    s.name: s
    for s in (
        BenchSet("dense-train", "linear layers at m = 4096", _TRAINING),
        BenchSet("square", "square problems, and two nearly so", _SQUARE),
        BenchSet("dense", "dense-train and square", _TRAINING + _SQUARE),
        BenchSet("small-m", "linear layers at m = 1 to 128: weights stream from memory", _SMALL),
        BenchSet("small-m-quick", "the same at m = 1, 64 and 128 for three layers",
                 tuple((m, n, k) for m in (1, 64, 128)
                       for n, k in ((2112, 7168), (7168, 16384), (7168, 2048)))),
        BenchSet("odd", "sizes that no tile divides", (
            (4097, 7161, 7184), (33, 129, 4112), (1, 7161, 7184), (17, 4104, 1040),
            (127, 2111, 7184), (129, 577, 7184), (255, 24575, 1552), (257, 4095, 528),
            (1000, 1000, 1008), (2049, 2047, 2064), (4095, 32760, 528), (5000, 3001, 4112),
        ), beside_regular=True),
    )
}  # fmt: skip


def bench_set(name: str) -> BenchSet:
    """The set called `name`.

    Raises: ArgumentError if there is none.
    """
    if name not in SETS:
        raise ArgumentError(not_one_of("set", name, SETS))
    return SETS[name]


def kind(name: str) -> Kind:
    """The kind called `name`.

    Raises: ArgumentError if there is none.
    """
    if name not in KINDS:
        raise ArgumentError(not_one_of("kind", name, KINDS))
    return KINDS[name]


def regular_shape(shape: Shape) -> Shape:
    """The next shape that tiles divide: m in 64s, n and k in 128s."""
    m, n, k = shape
    return -(-m // 64) * 64, -(-n // 128) * 128, -(-k // 128) * 128

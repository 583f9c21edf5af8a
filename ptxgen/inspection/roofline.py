"""What bounds a problem on a GPU: its arithmetic, or the bytes that must move."""

from dataclasses import dataclass
from math import ceil

from ptxgen.devices import GPU_MODELS, GpuModel
from ptxgen.dtypes import dtype
from ptxgen.micro_kinds import MICRO_KINDS, micro_kind
from ptxgen.problem import MICRO_SCALES, Gemm


@dataclass(frozen=True)
class Roofline:
    """A lower bound of the time of one problem on one GPU, from its published rates."""

    gpu: str
    flop_seconds: float
    """Time of the arithmetic at the Tensor Core's published rate."""
    dram_seconds: float
    """Time to move every operand over the memory bus once."""
    ridge_flop_per_byte: float
    """Below this intensity the memory is the limit."""
    tile_bytes: int
    """Bytes that all CTAs together load and store, tile by tile; most of them from the L2 cache."""
    waves: float
    """Tiles over the SMs of the GPU; just above an integer is a bad place."""

    @property
    def seconds(self) -> float:
        """The larger of the two times."""
        return max(self.flop_seconds, self.dram_seconds)

    @property
    def limit(self) -> str:
        """What the larger time is due to."""
        return "memory" if self.dram_seconds > self.flop_seconds else "tensor cores"


def rooflines(problem: Gemm, arch: str, tile: tuple[int, int]) -> list[Roofline]:
    """The roofline of `problem` on each GPU model of `arch`, with tiles of tile_m x tile_n."""
    return [_roofline(problem, gpu, tile) for gpu in GPU_MODELS.values() if gpu.arch == arch]


def _tflops(problem: Gemm, gpu: GpuModel) -> float:
    """The published rate of the MMAs that the formats call for. Formats below 8 bits run as fast as
    FP8, unless both are e2m1 with scales that the fp4 kinds apply."""
    if problem.scale in MICRO_SCALES:
        kind = MICRO_KINDS[micro_kind(problem.a, problem.b, problem.scale)]
        return gpu.fp4_tflops if kind.is_fp4 else gpu.fp8_tflops
    if problem.a == "tf32":
        return gpu.tf32_tflops
    return gpu.bf16_tflops if dtype(problem.a).bits == 16 else gpu.fp8_tflops


def _roofline(problem: Gemm, gpu: GpuModel, tile: tuple[int, int]) -> Roofline:
    flop_rate = _tflops(problem, gpu) * 1e12
    byte_rate = gpu.dram_gbytes_per_s * 1e9
    rows, columns = ceil(problem.m / tile[0]), ceil(problem.n / tile[1])
    a_bytes, b_bytes, d_bytes = (
        dtype(getattr(problem, name)).bytes * count
        for name, count in (
            ("a", columns * problem.m * problem.k),
            ("b", rows * problem.n * problem.k),
            ("d", problem.m * problem.n),
        )
    )
    return Roofline(
        gpu.name,
        problem.flop / flop_rate,
        problem.compulsory_bytes / byte_rate,
        flop_rate / byte_rate,
        a_bytes + b_bytes + d_bytes,
        rows * columns / gpu.num_sms,
    )

"""Which config DeepGEMM takes for a problem on an H200.

DeepGEMM chooses in C++ on the host, which needs torch and a GPU. The same rules are stated here, so
that its kernels can be compiled where there is neither. They follow its commit 54e2261 (version
2.6.1): csrc/jit_kernels/heuristics/sm90.hpp for the choice, csrc/jit_kernels/impls/sm90_*.hpp for
what each function asks of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ptxgen.benchmark.grouped_peers import PADDING
from ptxgen.layout import align_up

NUM_SMS = 132
SMEM_BYTES = 232448
WGMMA_M = 64
MAX_STAGES = 16
BARRIER_BYTES = MAX_STAGES * 16
L2_BYTES_PER_CYCLE = int(min(64 * NUM_SMS, 8e6 / 1.3e3))
L1_BYTES_PER_CYCLE = 128 * NUM_SMS
TENSOR_MAP_BYTES = 128
INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Family:
    """One of its functions for Hopper."""

    name: str
    kernel: str
    """1d2d, 1d1d or bf16: the kernel that it launches."""
    gemm_type: str
    """Its name for how the groups lie in memory."""
    compiled_dims: str
    """Sizes that are template arguments rather than parameters."""

    @property
    def ab_bytes(self) -> int:
        """Bytes of an element of A and B."""
        return 2 if self.kernel == "bf16" else 1

    @property
    def d_bytes(self) -> int:
        """Bytes of an element of D: the 1d1d kernel adds to FP32."""
        return 4 if self.kernel == "1d1d" else 2

    @property
    def block_k(self) -> int:
        """Elements of K in a stage: 128 bytes."""
        return 128 // self.ab_bytes


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("fp8", "1d2d", "Normal", "nk"),
        Family("masked", "1d2d", "MGroupedMasked", "nk"),
        Family("contiguous", "1d2d", "MGroupedContiguous", "nk"),
        Family("kgrouped", "1d1d", "KGroupedContiguous", "mn"),
        Family("bf16", "bf16", "Normal", "nk"),
    )
}


@dataclass(frozen=True)
class Problem:
    """A problem as DeepGEMM's functions see it; all matrices are dense, A [M,K] and B [N,K]."""

    family: str
    m: int
    """Rows: of one group where masked, of all of them, padded, where contiguous."""
    n: int
    k: int
    """Where kgrouped, of all groups."""
    groups: int = 1
    expected_m: int = 0
    """Where masked, the rows that the caller expects in a group."""
    rows: tuple[int, ...] = ()
    """Where kgrouped, K of each group."""


@dataclass(frozen=True)
class Config:
    """Tile, cluster and stages of a kernel."""

    block_m: int
    block_n: int
    cluster_m: int
    cluster_n: int
    stages: int
    smem_bytes: int

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def math_threads(self) -> int:
        """Threads that compute; 128 more load."""
        return 128 if self.block_m <= WGMMA_M else 256


def swizzle_bytes(row_bytes: int) -> int:
    """The widest swizzle whose width divides a row; 16 stands for none."""
    return next(width for width in (128, 64, 32, 16) if row_bytes % width == 0)


def best_configs(problem: Problem, count: int = 1) -> list[Config]:
    """The `count` configs that DeepGEMM's model finds fastest, its choice first.

    Among equals the one that it looks at first comes first.
    """
    return sorted(candidates(problem), key=lambda config: cycles(problem, config))[:count]


def candidates(problem: Problem) -> Iterator[Config]:
    """All configs that DeepGEMM looks at, in its order."""
    family = FAMILIES[problem.family]
    kind = family.gemm_type
    alone = kind == "KGroupedContiguous" and problem.groups > 4
    for cluster_m, cluster_n in ((1, 1),) if alone else ((1, 1), (1, 2), (2, 1)):
        for block_m in _tile_heights(problem):
            for block_n in _tile_widths(family.kernel):
                blocks_n = -(-problem.n // block_n)
                if kind == "MGroupedMasked" and blocks_n % (cluster_m * cluster_n):
                    continue
                if block_m > 128 and block_n > 128:
                    continue
                config = _staged(problem, block_m, block_n, cluster_m, cluster_n)
                least = 3 if block_m * block_n >= 128 * 192 else 4
                if config.stages >= least:
                    yield config


def _tile_heights(problem: Problem) -> list[int]:
    family = FAMILIES[problem.family]
    if family.gemm_type == "MGroupedContiguous":
        return [PADDING]
    heights = [64, 128]
    if family.gemm_type != "MGroupedMasked":
        heights += [rows for rows in (16, 32) if problem.m <= rows]
        heights += [256] if family.d_bytes == 2 else []
    return heights


def _tile_widths(kernel: str) -> list[int]:
    if kernel == "1d1d":
        return [16, *range(24, 161, 16)]
    if kernel == "bf16":
        return list(range(16, 257, 16))
    # A tile that spans two scales of B must split into equal runs of one scale each.
    return [
        width for width in range(16, 193, 16)
        if width <= 128 or not width % (width - 128) or not 128 % (width - 128)
    ]  # fmt: skip


def _staged(problem: Problem, block_m: int, block_n: int, cluster_m: int, cluster_n: int) -> Config:
    """A tile with as many stages as shared memory holds."""
    family = FAMILIES[problem.family]
    stage = (block_m + block_n) * 128
    extra = align_up(block_m * block_n * family.d_bytes, 1024) + BARRIER_BYTES
    if family.kernel != "bf16":
        stage += align_up(block_m * 4, 128)
    if family.kernel == "1d1d":
        stage += align_up(block_n * 4, 128)
        extra += 4 * TENSOR_MAP_BYTES if family.gemm_type == "KGroupedContiguous" else 0
    if family.kernel == "1d2d":
        scales_of_b = 1 if 128 % block_n == 0 else 2
        extra += align_up(-(-problem.k // 128) * 4 * scales_of_b, 8)
    stages = min((SMEM_BYTES - extra) // stage, MAX_STAGES)
    return Config(block_m, block_n, cluster_m, cluster_n, stages, extra + stages * stage)


def cycles(problem: Problem, config: Config) -> int:
    """Cycles that DeepGEMM's model expects: traffic of L1 and L2 over the share of busy SMs."""
    family = FAMILIES[problem.family]
    m = problem.expected_m or problem.m
    k = max(problem.rows) if problem.rows else problem.k
    # A contiguous problem is one group of all rows to the model.
    groups = problem.groups if family.gemm_type != "MGroupedContiguous" else 1
    block_m, block_n = config.block_m, config.block_n
    blocks = -(-m // block_m) * -(-problem.n // block_n) * groups
    waves = -(-blocks // NUM_SMS)
    if config.cluster > 1 and waves <= 1:
        return INT64_MAX
    d_tile = block_m * block_n * family.d_bytes
    stored = d_tile * (2 if family.kernel == "1d1d" else 1)
    row = k * family.ab_bytes
    from_l2 = row * (block_m // config.cluster_n + block_n // config.cluster_m)
    in_l1 = row * (block_m + block_n)
    to_mma = row * (max(WGMMA_M, block_m) + block_n) + d_tile
    l2 = (from_l2 + stored) * blocks // L2_BYTES_PER_CYCLE
    l1 = (in_l1 + to_mma + stored) * blocks // L1_BYTES_PER_CYCLE
    busy = np.float32(blocks) / np.float32(waves * NUM_SMS)
    return int(np.float32(max(l1, l2)) / busy)  # in FP32 as there, which decides near ties

"""What the configs of kernels on wgmma have in common."""

from collections.abc import Iterable

from ptxgen.arch import arch
from ptxgen.config_rules import settle_types
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.layout import MMA_M, TILE_ALIGNMENT, DStaging, OperandTile, SmemRegion, align_up
from ptxgen.problem import BLOCK_SCALES, PROMOTION_K, SCALE_BLOCK

UNIT = "wgmma"
"""The Tensor Core's instruction, as ptxgen.verification models it."""
TARGET = "sm_90a"
TARGETS = (TARGET,)
VERSION = "8.0"
WARPGROUP_THREADS = 128
MOVER_LANES = 32
"""Lanes of the warp that copies block scales; each arrives at the full barrier."""
NUM_SMS = 132
"""Persistent CTAs when no device is given: the SMs of an H100 or H200."""
MAX_STAGES = 32


class WgmmaConfig:
    """A ring of stages, consumer warpgroups that own blocks of 64 rows, and D staged for TMA.

    A Config adds the fields, its own name, and what takes shared memory and registers.
    """

    a: str
    d: str
    scale: str
    accumulate: str
    tile_m: int
    tile_n: int
    stages: int
    cluster_m: int
    cluster_n: int
    warpgroups: int
    store: str

    def __post_init__(self) -> None:
        """Settle the types of fields. Raises: ConfigError."""
        settle_types(self)

    @property
    def tile_k(self) -> int:
        """K of one k-tile."""
        raise NotImplementedError

    @property
    def mma_rows(self) -> int:
        """Rows of the tile on wgmma's M."""
        return self.tile_m

    @property
    def blocks_per_warpgroup(self) -> int:
        """Blocks of 64 rows of wgmma that one consumer warpgroup owns."""
        return self.mma_rows // (MMA_M * self.warpgroups)

    @property
    def promotion_tiles(self) -> int:
        """k-tiles between two promotions; 0 if not promoted."""
        return PROMOTION_K // self.tile_k if self.accumulate == "promoted" else 0

    @property
    def block_scaled(self) -> bool:
        """Whether scales belong to blocks of K, and come with each k-tile."""
        return self.scale in BLOCK_SCALES

    @property
    def scales_bytes(self) -> int:
        """Shared memory of one stage's scales."""
        raise NotImplementedError

    @property
    def a_tile(self) -> OperandTile:
        """A's tile in shared memory."""
        raise NotImplementedError

    @property
    def b_tile(self) -> OperandTile:
        """B's tile in shared memory."""
        raise NotImplementedError

    @property
    def cta_threads(self) -> int:
        """Threads of one CTA: consumers, and a warpgroup that feeds them."""
        return WARPGROUP_THREADS * (1 + self.warpgroups)

    @property
    def full_arrivals(self) -> int:
        """Arrivals that, with the bytes, fill a stage."""
        return 1 + (MOVER_LANES if self.block_scaled else 0)

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage's tiles."""
        tiles = self.a_tile.nbytes, self.b_tile.nbytes
        return sum(align_up(nbytes, TILE_ALIGNMENT) for nbytes in tiles) + self.pad_bytes

    @property
    def pad_bytes(self) -> int:
        """Shared memory behind a stage's tiles, all zeros."""
        return 0

    @property
    def d_tile_n(self) -> int:
        """Columns of D in a tile."""
        return self.tile_n

    @property
    def stages_whole_tiles(self) -> bool:
        """Whether the staging buffers of a warpgroup hold its whole part of a tile of D."""
        return self.chunks_of_d <= DStaging.NUM_BUFFERS

    @property
    def chunks_of_d(self) -> int:
        """Chunks of 64 rows x 128 bytes of a warpgroup's part of a tile of D that lies as wgmma
        leaves it, not swapped."""
        return self.blocks_per_warpgroup * len(DStaging(dtype(self.d), self.d_tile_n).chunks)

    @property
    def staging_bytes(self) -> int:
        """Shared memory through which D is stored."""
        if self.store == "global":
            return 0
        return self.warpgroups * DStaging.NUM_BUFFERS * DStaging.BUFFER_BYTES

    @property
    def staging_region(self) -> tuple[str, int, str]:
        """Name, bytes and use of what D is stored through."""
        what = f"D staging, {DStaging.NUM_BUFFERS} buffers per consumer warpgroup"
        return "d", self.staging_bytes, what

    @property
    def ring_regions(self) -> tuple[tuple[str, int, str], ...]:
        """The same of the ring's barriers."""
        return (
            ("full", 8 * self.stages, "mbarriers: stage filled"),
            ("empty", 8 * self.stages, "mbarriers: stage read"),
        )

    @property
    def bytes_per_stage(self) -> int:
        """Shared memory that one more stage takes, with its full and empty barriers."""
        return self.stage_bytes + self.scales_bytes + 2 * 8

    @property
    def fixed_bytes(self) -> int:
        """Shared memory that does not grow with the number of stages."""
        return self.staging_bytes

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of one CTA."""
        return self.stages * self.bytes_per_stage + self.fixed_bytes

    @property
    def smem_limit(self) -> int:
        """Shared memory that a CTA can have."""
        return arch(TARGET).smem_bytes

    @property
    def stages_that_fit(self) -> int:
        """Stages that shared memory has room for, whatever `stages` says."""
        return (self.smem_limit - self.fixed_bytes) // self.bytes_per_stage

    def check_blocks(self, rows_field: str) -> None:
        """Refuse rows that warpgroups cannot share in blocks. rows_field: which field they are.

        Raises: ConfigError.
        """
        rows = MMA_M * self.warpgroups
        if self.mma_rows % rows:
            raise ConfigError(
                f"{rows_field}={self.mma_rows} must be a multiple of 64 rows per warpgroup, so of "
                f"{rows} with warpgroups={self.warpgroups}; try {rows_field}={rows}"
            )

    def check_block_scales(self) -> None:
        """Refuse block scales where partial sums are not those of one block of K.

        Raises: ConfigError.
        """
        if self.block_scaled and (self.accumulate != "promoted" or self.tile_k != SCALE_BLOCK):
            raise ConfigError(
                f"scale={self.scale} multiplies 128-K partial sums, so it needs "
                f"accumulate=promoted and tile_k=128, got accumulate={self.accumulate} and "
                f"tile_k={self.tile_k} of {self.a}; try an FP8 type with swizzle=128"
            )

    def check_registers(self, needed: int, limit: int, columns_field: str) -> None:
        """Refuse more registers per thread than a consumer has. columns_field: what needs fewer.

        Raises: ConfigError.
        """
        if needed > limit:
            raise ConfigError(
                f"tile {self.tile_m}x{self.tile_n} with {self.warpgroups} warpgroup(s) and "
                f"accumulate={self.accumulate} needs about {needed} registers per thread, a "
                f"consumer has {limit}; try a smaller {columns_field}"
                + (" or warpgroups=2" if self.warpgroups == 1 and not self.mma_rows % 128 else "")
            )


def ring_map(config: WgmmaConfig, rest: Iterable[tuple[str, int, str]]) -> tuple[SmemRegion, ...]:
    """Regions of dynamic shared memory: the stages' tiles, then `rest`: (name, bytes, what)."""
    a_bytes, b_bytes = config.a_tile.nbytes, config.b_tile.nbytes
    regions = []
    for stage in range(config.stages):
        offset = stage * config.stage_bytes
        b_offset = offset + align_up(a_bytes, TILE_ALIGNMENT)
        regions.append(SmemRegion(f"a[{stage}]", offset, a_bytes, "A tile"))
        regions.append(SmemRegion(f"b[{stage}]", b_offset, b_bytes, "B tile"))
        if config.pad_bytes:
            pad = offset + config.stage_bytes - config.pad_bytes
            regions.append(SmemRegion(f"pad[{stage}]", pad, config.pad_bytes, "zeros"))
    end = config.stages * config.stage_bytes
    for name, nbytes, what in rest:
        if nbytes:
            regions.append(SmemRegion(name, end, nbytes, what))
            end += nbytes
    return tuple(regions)

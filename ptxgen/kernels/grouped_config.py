"""Config of grouped_sm90: what may be tuned, and which combinations are legal."""

from dataclasses import dataclass

from ptxgen.config_rules import check_smem, check_values
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.kernels.wgmma_config import MAX_STAGES, TARGET, WgmmaConfig
from ptxgen.layout import MMA_M, DStaging, OperandTile, align_up, operand_tile
from ptxgen.problem import SCALE_BLOCK

NAME = "grouped_sm90"
SWIZZLE_BYTES = 128
"""Swizzle of A and B tiles, and the bytes of K in one k-tile."""
TOKEN_ROWS = 8
"""Rows of A come in eights: the smallest TMA box of a swizzled tile, and wgmma's step of N."""
PRODUCER_REGISTERS = {1: 40, 2: 40, 3: 32}
"""Registers per thread of the warpgroup that loads, moves scales and walks groups, by consumer
warpgroups."""
CONSUMER_REGISTERS = {1: 255, 2: 232, 3: 160}
"""Registers per consumer thread, by warpgroups; two: 3 x 168 at entry = 40 + 232 + 232, three:
4 x 128 = 32 + 3 x 160."""
OVERHEAD_REGISTERS = {1: 56, 2: 48, 3: 48}
"""Registers for everything but accumulators, by warpgroups. Measured: ptxas 13.0 and 13.5 assemble
every configuration within this bound without a spill (tests/test_grouped_configs.py)."""
VECTOR_SCALE_REGISTERS = 40
"""What the epilogue needs beyond that for factors of single rows and columns."""
UNPROMOTED_REGISTERS = 8
"""The same where the accumulators are what is stored."""
STAGED_F32_REGISTERS = 16
"""The same for sums that are staged as they are, unrounded."""
SPARED_REGISTERS = 16
"""Registers by which the overhead is smaller where accumulators die before the epilogue starts, or
few registers hold the factors of a k-tile."""
WORK_SLOTS = 4
"""Tiles that the scheduler is ahead of the slowest role."""
WORK_BYTES = 32
"""One tile's description: eight words."""
COARSE_STEP = 64
"""token_step that makes three main loops at most."""
MOST_ROWS_IN_FINE_STEPS = 104
"""kgrouped: tile_m up to which smaller steps assemble without a spill. Measured, ptxas 13.0."""
MOST_HANDED_CHUNKS = 4
"""Chunks of D of a warpgroup that are staged at once to be added: 32 KB."""
SLOT_HEADER_BYTES = 128
"""What lies before the sums in a slot of the workspace: the word that tells it is full, on a line
of the L2 of its own."""
MOST_SHARED_GROUPS = 32
"""Groups with stream_k: one for each lane of the warp that counts tiles first."""
STORES = ("tma", "global")
LOOPS = ("auto", "overlapped", "drained")
HINTS = ("none", "evict_first")


@dataclass(frozen=True)
class Config(WgmmaConfig):
    """What may be tuned, and what the text depends on. `str()` is its name."""

    mode: str
    index: str
    """How a contiguous problem describes its groups; offsets for the other modes."""
    a: str
    b: str
    d: str
    scale: str
    accumulate: str
    swap_ab: bool = False
    """Whether B takes the M of wgmma and rows of A its N."""
    tile_m: int = 128
    """Rows of A; swapped: at most, since a tile is as wide as its rows need."""
    tile_n: int = 128
    stages: int = 4
    cluster_m: int = 1
    """CTAs of a cluster along M: they share tiles of B."""
    cluster_n: int = 1
    """CTAs of a cluster along N: they share tiles of A."""
    warpgroups: int = 2
    token_step: int = 8
    """Swapped: there is one main loop for each multiple of this up to tile_m."""
    store: str = "tma"
    """How D is stored: tma, but for the rows of a group's end; or global (st.global), for
    addresses, strides or row lengths that TMA refuses."""
    loop: str = "auto"
    """Main loop with promotion. auto: two accumulator sets take turns in each warpgroup where
    registers allow and that is faster, with everything asked for ahead where registers allow that,
    too; else drained. overlapped: the two sets without asking ahead. drained: one set, added when
    its wgmma are done."""
    hint: str = "none"
    """L2 policy of the loads of B: evict_first where its tiles are read once."""

    stream_k: bool = False
    """Whether the tiles of the last wave, fewer than CTAs, are shared out along K, so that all CTAs
    end together. Sums of such a tile are added part by part, through a workspace in global
    memory; which tiles are shared depends on all groups' rows, and on the number of SMs."""

    def __str__(self) -> str:
        swapped = f"swapped{self.token_step}" if self.swap_ab else "straight"
        mode = f"{self.mode}_{self.index}" if self.mode == "contiguous" else self.mode
        return "_".join(
            (
                NAME, mode, self.a, self.b, self.d, self.scale, self.accumulate, swapped,
                f"{self.tile_m}x{self.tile_n}", f"s{self.stages}",
                f"c{self.cluster_m}x{self.cluster_n}", f"w{self.warpgroups}", self.store,
                self.loop, self.hint, *(["streamk"] if self.stream_k else []),
            )
        )  # fmt: skip

    @property
    def tile_k(self) -> int:
        """K of one k-tile: one swizzle row."""
        return SWIZZLE_BYTES // dtype(self.a).bytes

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def mma_rows(self) -> int:
        """Rows of the tile on wgmma's M."""
        return self.tile_n if self.swap_ab else self.tile_m

    @property
    def mma_columns(self) -> tuple[int, ...]:
        """N of wgmma in each main loop, ascending."""
        if not self.swap_ab:
            return (self.tile_n,)
        return tuple(
            sorted({*range(self.token_step, self.tile_m + 1, self.token_step), self.tile_m})
        )

    def overlaps_promotion(self, columns: int) -> bool:
        """Whether two accumulator sets take turns in the main loop of `columns` columns, see
        gemm_sm90's Config. With loop=auto not where several warpgroups read a factor for each
        column: 16 parts of K, 4096 x 7168, took 2563 us on an H200 with two sets, 2380 with one."""
        drains = self.reads_column_factors and self.warpgroups > 1
        return (
            self.promotion_tiles == 1
            and (self.loop == "overlapped" or (self.loop == "auto" and not drains))
            and self.stages > 1
            and self.blocks_per_warpgroup % 2 == 1
            and self._registers(columns, overlapped=True) <= CONSUMER_REGISTERS[self.warpgroups]
        )

    def asks_ahead(self, columns: int) -> bool:
        """Whether the two sets of `columns` columns leave registers for the factors of a k-tile."""
        return (
            self.loop == "auto"
            and self.blocks_per_warpgroup == 1
            and self.overlaps_promotion(columns)
            and self._registers(columns, overlapped=True) + self._factor_registers(columns)
            <= CONSUMER_REGISTERS[self.warpgroups]
        )

    def _factor_registers(self, columns: int) -> int:
        """Registers that factors of columns take if they are made ahead."""
        return columns // 4 if self.prepares_factors else 0

    @property
    def prepares_factors(self) -> bool:
        """Whether a drained main loop makes the factors of its columns while its wgmma run."""
        return self.swap_ab and self.scale == "block"

    @property
    def has_one_factor(self) -> bool:
        """Whether all partial sums of a row have the same factor in a k-tile."""
        return self.scale == "block" and not self.swap_ab and self.columns_per_scale == self.tile_n

    @property
    def reads_column_factors(self) -> bool:
        """Whether each column of a straight tile has a factor of its own in each k-tile."""
        return self.scale == "group" and not self.swap_ab

    @property
    def slot_bytes(self) -> int:
        """Workspace of one warpgroup of one CTA, for the sums of a part of a tile."""
        sums = self.mma_rows // self.warpgroups * self.mma_columns[-1]
        return SLOT_HEADER_BYTES + 4 * sums

    def num_accumulators(self, columns: int) -> int:
        """Accumulator sets of 64 rows in the main loop of `columns` columns."""
        return 2 if self.overlaps_promotion(columns) else self.blocks_per_warpgroup

    @property
    def columns_per_scale(self) -> int:
        """Rows of B in the tile that share one entry of scale_b in a stage."""
        if self.scale == "group":
            return 1
        if self.swap_ab:
            return MMA_M
        return self.tile_n if SCALE_BLOCK % self.tile_n == 0 else 8

    @property
    def scale_entries(self) -> tuple[int, int]:
        """Entries of scale_a and scale_b in one stage."""
        if not self.block_scaled:
            return 0, 0
        return self.tile_m, self.tile_n // self.columns_per_scale

    @property
    def scales_bytes(self) -> int:
        """Shared memory of one stage's scales: those of wgmma's rows, then those of its columns."""
        return sum(align_up(4 * entries, 16) for entries in self.scale_entries)

    @property
    def a_tile(self) -> OperandTile:
        """A's tile in shared memory. It is loaded in boxes of powers of two of rows."""
        return operand_tile(self.a, True, SWIZZLE_BYTES, self.tile_m, self.tile_k)

    @property
    def b_tile(self) -> OperandTile:
        """B's tile in shared memory."""
        return operand_tile(self.b, True, SWIZZLE_BYTES, self.tile_n, self.tile_k, self.cluster_m)

    @property
    def clears_a(self) -> bool:
        """Whether wgmma may read rows of A's tile that no tile has loaded yet."""
        return not self.swap_ab or self.token_step > TOKEN_ROWS

    @property
    def token_boxes(self) -> tuple[int, ...]:
        """Rows of the TMA boxes from which any multiple of 8 rows of A is put together."""
        largest = 1 << self.tile_m.bit_length() - 1
        return tuple(
            largest >> i for i in range(largest.bit_length()) if largest >> i >= TOKEN_ROWS
        )

    @property
    def hands_over(self) -> bool:
        """Whether a tile is staged whole, and added to D by a warp that does nothing else then."""
        return self.trims_k and self.store == "tma" and self.chunks_of_d <= MOST_HANDED_CHUNKS

    @property
    def handed_buffers(self) -> int:
        """Staging buffers of a warpgroup then: a power of two, as halves change places."""
        return max(2, 1 << (self.chunks_of_d - 1).bit_length())

    @property
    def staging_bytes(self) -> int:
        """Shared memory through which D is stored."""
        if not self.hands_over:
            return super().staging_bytes
        return self.warpgroups * self.handed_buffers * DStaging.BUFFER_BYTES

    @property
    def staging_region(self) -> tuple[str, int, str]:
        """Name, bytes and use of what D is stored through."""
        if not self.hands_over:
            return super().staging_region
        return "d", self.staging_bytes, "D staging, a whole tile"

    @property
    def fixed_bytes(self) -> int:
        """Shared memory that does not grow with the number of stages."""
        work = WORK_SLOTS * (WORK_BYTES + 2 * 8)
        return super().fixed_bytes + work + (2 * 8 if self.hands_over else 0)

    @property
    def trims_k(self) -> bool:
        """Whether a group may end inside a k-tile, whose rest is its neighbour's."""
        return self.mode == "kgrouped"

    @property
    def bytes_per_stage(self) -> int:
        """Shared memory that one more stage takes."""
        return super().bytes_per_stage + (8 if self.trims_k else 0)

    @property
    def work_readers(self) -> int:
        """Arrivals that hand a work slot back: producer, mover, trimmer and every consumer warp."""
        return 1 + self.block_scaled + self.trims_k + 4 * self.warpgroups

    def check_values(self) -> None:
        """Refuse fields outside their range.

        Raises: ConfigError.
        """
        rows = range(TOKEN_ROWS, 257, TOKEN_ROWS)
        tiles = (64, 128, 192, 256)
        swapped = f" with swap_ab={'on' if self.swap_ab else 'off'}"
        sizes = (
            {"tile_m": rows, "tile_n": tiles} if self.swap_ab else {"tile_m": tiles, "tile_n": rows}
        )
        check_values(self, sizes, swapped)
        allowed = {
            "stages": range(1, MAX_STAGES + 1),
            "cluster_m": (1, 2),
            "cluster_n": (1, 2),
            "warpgroups": (1, 2, 3),
            "token_step": (8, 16, 32, 64),
            "store": STORES,
            "loop": LOOPS,
            "hint": HINTS,
        }
        check_values(self, allowed)

    def check(self) -> None:
        """Refuse what cannot work, whatever the problem.

        Raises: ConfigError with rule, value, limit and what to try.
        """
        self.check_values()
        if self.cluster_ctas > 2:
            raise ConfigError(
                f"cluster {self.cluster_m}x{self.cluster_n} must have at most 2 CTAs; try 1x2"
            )
        self.check_blocks("tile_n" if self.swap_ab else "tile_m")
        if self.warpgroups == 3 and not (self.has_one_factor or self._hands_over_in_thirds):
            raise ConfigError(
                "warpgroups=3 leaves each consumer 160 registers, enough for scale=block with "
                f"swap_ab=off and a tile_n that divides {SCALE_BLOCK}, or mode=kgrouped with "
                "scale=group, swap_ab=off, store=tma and a tile_n of 32, 64, 96 or 128; got "
                f"scale={self.scale}, swap_ab={'on' if self.swap_ab else 'off'}, tile_n="
                f"{self.tile_n}, mode={self.mode}, store={self.store}; try warpgroups=2 "
                f"with {'tile_n' if self.swap_ab else 'tile_m'}=128"
            )
        if self.stream_k and (self.cluster_ctas > 1 or self.trims_k or self.index == "rows"):
            raise ConfigError(
                "stream_k shares out tiles that single CTAs count before they start, so it needs "
                "cluster 1x1, and groups that have the same K and are counted: mode=masked, "
                f"batched, or contiguous without index=rows; got cluster {self.cluster_m}x"
                f"{self.cluster_n}, mode={self.mode}, index={self.index}; try stream_k=off"
            )
        if self.cluster_m > 1 and self.tile_n % 16:
            raise ConfigError(
                f"tile_n={self.tile_n} must be a multiple of 16, since the 2 CTAs of the cluster "
                f"each load a half of whole 8-row groups; try tile_n={align_up(self.tile_n, 16)}"
            )
        if self.swap_ab and self.store == "tma" and dtype(self.d).bytes != 2:
            raise ConfigError(
                f"store=tma with swap_ab=on transposes 16-bit values, got d={self.d}; try "
                "store=global"
            )
        if (
            self.mode == "kgrouped"
            and self.swap_ab
            and self.tile_m > MOST_ROWS_IN_FINE_STEPS
            and self.token_step < COARSE_STEP
        ):
            raise ConfigError(
                f"token_step={self.token_step} with mode=kgrouped, swap_ab=on and tile_m="
                f"{self.tile_m} makes so many main loops that registers are spilled; try "
                f"token_step={COARSE_STEP}, as all groups have the same rows"
            )
        if self.mode == "kgrouped" and self.swap_ab and self.store != "global":
            raise ConfigError(
                "swap_ab=on with mode=kgrouped adds to float32 values one by one; try store=global"
            )
        self.check_block_scales()
        self._check_registers()
        check_smem(self, TARGET)

    @property
    def _hands_over_in_thirds(self) -> bool:
        """Whether three warpgroups hand over sums that each have a factor: they need few registers
        for it. Measured: ptxas 13.0 and 13.5 assemble these without a spill."""
        return (
            self.warpgroups == 3
            and self.hands_over
            and self.reads_column_factors
            and self.tile_n % 32 == 0
        )

    def _registers(self, columns: int, overlapped: bool) -> int:
        """Registers that a consumer needs, roughly."""
        sets = 2 if overlapped else self.blocks_per_warpgroup
        if self.accumulate == "promoted":
            sets += self.blocks_per_warpgroup
        overhead = OVERHEAD_REGISTERS[self.warpgroups]
        overhead += VECTOR_SCALE_REGISTERS if self.scale == "rowcol" else 0
        overhead += UNPROMOTED_REGISTERS if self.accumulate == "fast" else 0
        staged_f32 = dtype(self.d).bytes == 4 and self.store != "global"
        overhead += STAGED_F32_REGISTERS if staged_f32 and not self._hands_over_in_thirds else 0
        spares = overlapped or self.prepares_factors or self.has_one_factor
        spares |= self._hands_over_in_thirds
        overhead -= SPARED_REGISTERS if spares else 0
        factors = 0 if overlapped else self._factor_registers(columns)
        return sets * columns // 2 + factors + overhead

    def _check_registers(self) -> None:
        widest = self.mma_columns[-1]
        needed = self._registers(widest, self.overlaps_promotion(widest))
        limit = CONSUMER_REGISTERS[self.warpgroups]
        self.check_registers(needed, limit, "tile_m" if self.swap_ab else "tile_n")

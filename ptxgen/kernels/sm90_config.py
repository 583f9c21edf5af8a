"""Config of gemm_sm90: what may be tuned, and what follows from it."""

from dataclasses import dataclass, replace

from ptxgen.arch import TWO_CTAS_BYTES
from ptxgen.descriptors import MatrixDescriptor
from ptxgen.dtypes import dtype
from ptxgen.epilogue import GATED
from ptxgen.kernels import sm90_rules
from ptxgen.kernels.row_chunks import RowStaging
from ptxgen.kernels.sm90_registers import (
    CONSUMER_REGISTERS,
    FEW_BOXES,
    PRODUCER_REGISTERS,
)
from ptxgen.kernels.wgmma_config import WARPGROUP_THREADS, WgmmaConfig
from ptxgen.layout import (
    CORE_ROWS,
    MMA_M,
    OperandTile,
    align_up,
    operand_tile,
)
from ptxgen.problem import SCALE_BLOCK

NAME = "gemm_sm90"
GROUP_PARTIAL_BYTES = 16 * WARPGROUP_THREADS
"""Partial sums of a warpgroup for 8 columns: four floats per thread."""
PARTIALS_BARRIER_BYTES = 16


@dataclass(frozen=True)
class Config(WgmmaConfig):
    """What may be tuned, and what the text depends on. `str()` is its name."""

    a: str
    b: str
    d: str
    layout: str
    scale: str
    accumulate: str
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 4
    cluster_m: int = 1
    """CTAs of a cluster along M: they share B tiles."""
    cluster_n: int = 1
    """CTAs of a cluster along N: they share A tiles."""
    warpgroups: int = 2
    """Consumer warpgroups; each owns tile_m / warpgroups rows. Three have registers for one set of
    accumulators beside the sums: while one promotes, the others keep the Tensor Core busy."""
    swizzle_bytes: int = 128
    """Swizzle of A and B tiles: 0 (none), 32, 64 or 128."""
    split_k: int = 1
    """CTAs of a cluster that share one tile, each with its own part of K; their partial sums are
    added in a fixed order through distributed shared memory. More than 1 needs store=global."""
    store: str = "tma"
    """How D is stored: tma; deferred (tma, during the next tile's main loop); global (st.global)
    for addresses, strides or row lengths that TMA refuses; elements of 16 bits then go through
    shared memory, row by row, unless K is split; deferred_global: that during the next one's."""
    a_rows: int = 0
    """Rows of A that a tile of 64 rows has, for problems that have no more: 8, 16 or 32. wgmma
    takes the others from what lies behind, and their sums are not stored. 0: all of them. TMA takes
    longer for a row outside the matrix than for one that it reads (measured on an H200)."""
    scale_format: str = "f32"
    """Format of block scales in memory: f32 or ue8m0 (a byte each)."""
    dependent_launch: bool = False
    """Whether the kernel may start before the one before it on the stream ends: it then loads B of
    its first k-tiles, and waits before it reads anything else or writes D."""
    ctas_per_sm: int = 1
    """CTAs that share an SM: while one stores its tile, the other keeps loading. 2 needs small
    tiles: each CTA has half of the SM's registers and shared memory."""
    c: str = "none"
    """dtype of C; this and what follows: see Epilogue."""
    bias: str = "none"
    bias_dtype: str = "f32"
    activation: str = "none"
    amax: bool = False
    d_scale: str = "none"

    def __str__(self) -> str:
        epilogue = {
            f"c_{self.c}": self.c != "none",
            f"bias_{self.bias}_{self.bias_dtype}": self.bias != "none",
            self.activation: self.activation != "none",
            "amax": self.amax,
            f"dscale_{self.d_scale}": self.d_scale != "none",
        }
        return "_".join(
            (
                NAME, self.a, self.b, self.d, self.layout, self.scale, self.accumulate,
                f"{self.tile_m}x{self.tile_n}x{self.tile_k}", f"s{self.stages}",
                f"c{self.cluster_m}x{self.cluster_n}x{self.split_k}", f"w{self.warpgroups}",
                f"swizzle{self.swizzle_bytes}", self.store,
                *([f"a{self.a_rows}"] if self.a_rows else []),
                *([self.scale_format] if self.scale_format != "f32" else []),
                *(["dependent"] if self.dependent_launch else []),
                *([f"{self.ctas_per_sm}ctas"] if self.ctas_per_sm > 1 else []),
                *(name for name, used in epilogue.items() if used),
            )
        )  # fmt: skip

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster_m * self.cluster_n * self.split_k

    @property
    def multicasts(self) -> bool:
        """Whether the CTAs of a cluster share tiles of A or B."""
        return self.cluster_m * self.cluster_n > 1

    @property
    def loads_first(self) -> bool:
        """Whether the thread that makes the barriers loads before the others know of them. Not in a
        cluster, whose barrier's release waits for loads in flight (0.5 us, measured on an H200),
        and not before the end of a kernel that is depended on."""
        return self.cluster_ctas == 1 and not self.dependent_launch

    def k_parts(self, k: int) -> tuple[tuple[int, int], ...]:
        """The parts of K that are summed on their own, as (first, past the last) elements."""
        step = self.tiles_per_part(k) * self.tile_k
        return tuple((min(i * step, k), min((i + 1) * step, k)) for i in range(self.split_k))

    def tiles_per_part(self, k: int) -> int:
        """k-tiles of one part of K (the last ones may have fewer)."""
        return -(-k // (self.tile_k * self.split_k))

    @property
    def partials_bytes(self) -> int:
        """Shared memory of this CTA's partial sums, if K is split."""
        return 4 * self.tile_m * self.tile_n if self.split_k > 1 else 0

    @property
    def gated(self) -> bool:
        """Whether two columns of the tile make one of D."""
        return self.activation in GATED

    @property
    def d_tile_n(self) -> int:
        """Columns of D in a tile."""
        return self.tile_n // 2 if self.gated else self.tile_n

    @property
    def stages_scales(self) -> bool:
        """Whether scales of rows and columns are copied to shared memory for the epilogue."""
        return self.scale == "rowcol" and self.stores_by_tma

    @property
    def vectors_bytes(self) -> int:
        """Shared memory of what one warpgroup stages: scales of its rows, then of all columns."""
        return 4 * (self.tile_m // self.warpgroups + self.tile_n) if self.stages_scales else 0

    @property
    def has_epilogue(self) -> bool:
        """Whether more follows the sums than their scales and a rounding to 16 or 32 bits."""
        added = self.c != "none" or self.bias != "none" or self.activation != "none" or self.amax
        return added or self.d_scale != "none" or dtype(self.d).bytes == 1

    @property
    def registers_per_block(self) -> int:
        """Accumulator registers of one block of 64 rows."""
        return self.tile_n // 2

    @property
    def overlaps_promotion(self) -> bool:
        """Whether two accumulator sets take turns: k-tiles as long as a promotion, and a ring.

        An odd number of blocks only: with two, ptxas 13.0 and 13.5 serialise the wgmma (C7514).
        """
        return (
            self.promotion_tiles == 1
            and self.stages > 1
            and self.blocks_per_warpgroup % 2 == 1
            and self.warpgroups < 3
        )

    @property
    def asks_ahead(self) -> bool:
        """Whether the overlapped main loop asks for stages and makes factors ahead: one block of
        rows for each warpgroup, and no factor for each column, for which ptxas would spill."""
        return self.overlaps_promotion and self.blocks_per_warpgroup == 1 and self.scale != "group"

    @property
    def stores_by_tma(self) -> bool:
        """Whether tensor maps of D are used."""
        return self.store in ("tma", "deferred")

    @property
    def defers(self) -> bool:
        """Whether a tile is stored during the next one's main loop."""
        return self.store in ("deferred", "deferred_global")

    @property
    def k_tiles_before_loop(self) -> int:
        """k-tiles that the main loop has written out before it goes round: one for each chunk of D
        that is stored beside it, and one without between each two."""
        return 2 * self.chunks_of_d - 1 if self.defers else 0

    @property
    def points_ahead(self) -> bool:
        """Whether the next stage's descriptors are made before it is waited for: 0 to 5 % for tiles
        of 64 rows, whose k-tiles are short (measured on an H200)."""
        return self.tile_m == MMA_M

    @property
    def stores_rows(self) -> bool:
        """Whether D goes through shared memory row by row, where TMA cannot store it."""
        fits = dtype(self.d).bytes == 2 and self.d_tile_n % CORE_ROWS == 0
        return not self.stores_by_tma and self.split_k == 1 and fits

    @property
    def staging_bytes(self) -> int:
        """Shared memory through which D is stored."""
        if self.stores_rows:
            return 4 * self.warpgroups * RowStaging(self.d_tile_n).warp_bytes
        return super().staging_bytes

    @property
    def staging_region(self) -> tuple[str, int, str]:
        """Name, bytes and use of what D is stored through."""
        if self.stores_rows:
            return "d", self.staging_bytes, "D staging, a buffer per consumer warp"
        return super().staging_region

    @property
    def publishes_late(self) -> bool:
        """Whether a tile that lies staged is handed to TMA while the next one's wgmma run.

        A proxy fence waits for loads in flight, so that it costs least where the Tensor Core has
        work: 1 to 5 % with two warpgroups, nothing with three (measured on an H200). The staging
        buffers must hold a whole tile.
        """
        return self.store == "tma" and self.overlaps_promotion and self.stages_whole_tiles

    @property
    def num_accumulators(self) -> int:
        """Accumulator sets of 64 rows."""
        return 2 if self.overlaps_promotion else self.blocks_per_warpgroup

    @property
    def busy_producer(self) -> bool:
        """Whether the producer warpgroup needs more registers: it moves scales, or many boxes."""
        num_boxes = self.a_tile.num_chunks + self.b_tile.num_chunks
        return self.block_scaled or num_boxes > FEW_BOXES

    @property
    def producer_registers(self) -> int:
        """Registers per thread that the producer warpgroup keeps."""
        return PRODUCER_REGISTERS[self.warpgroups][self.busy_producer]

    @property
    def consumer_registers(self) -> int:
        """Registers per thread that a consumer warpgroup has."""
        return CONSUMER_REGISTERS[self.warpgroups][self.busy_producer]

    @property
    def crosses_scale_blocks(self) -> bool:
        """Whether a tile can reach across a multiple of 128 columns, so into two scales of B."""
        return self.scale == "block" and SCALE_BLOCK % self.tile_n != 0

    @property
    def columns_per_scale(self) -> int:
        """Columns of the tile that share one entry of scale_b in a stage."""
        if self.scale == "group":
            return 1
        return 8 if self.crosses_scale_blocks else self.tile_n

    @property
    def scale_b_entries(self) -> int:
        """Entries of scale_b in a stage."""
        return self.tile_n // self.columns_per_scale if self.block_scaled else 0

    @property
    def scales_bytes(self) -> int:
        """Shared memory of one stage's scales."""
        if not self.block_scaled:
            return 0
        return align_up(4 * (self.tile_m + self.scale_b_entries), 16)

    @property
    def a_tile(self) -> OperandTile:
        """A's tile in shared memory."""
        return operand_tile(
            self.a, self.layout[0] == "n", self.swizzle_bytes, self.a_rows or self.tile_m,
            self.tile_k, self.cluster_n,
        )  # fmt: skip

    @property
    def a_descriptor(self) -> MatrixDescriptor:
        """Descriptor of A's tile. Of 8 rows alone: no step, so that all 64 of wgmma are these."""
        whole = self.a_tile.descriptor
        return replace(whole, stride_bytes=0) if self.a_rows == CORE_ROWS else whole

    @property
    def pad_bytes(self) -> int:
        """What wgmma reads behind A and B of a stage: it takes 64 rows of A, and where 16 or 32 are
        loaded, it takes the others from B's bytes. What they give reaches no result."""
        if self.a_rows in (0, CORE_ROWS):
            return 0
        return max(0, MMA_M * self.a_tile.pitch_bytes - self.a_tile.nbytes - self.b_tile.nbytes)

    @property
    def tx_bytes(self) -> int:
        """What TMA loads into one stage."""
        return self.a_tile.nbytes + self.b_tile.nbytes

    @property
    def can_load_few_rows(self) -> bool:
        """Whether a_rows may be other than 0."""
        alone = self.tile_m == MMA_M and not self.multicasts
        return alone and self.a_tile.k_major and self.swizzle_bytes == 128

    @property
    def can_share_sms(self) -> bool:
        """Whether ctas_per_sm may be more than 1."""
        alone = self.cluster_ctas == 1 and not self.dependent_launch and not self.has_epilogue
        return alone and self.tile_m == MMA_M and self.tile_n <= sm90_rules.MOST_SHARED_COLUMNS

    @property
    def b_tile(self) -> OperandTile:
        """B's tile in shared memory."""
        return operand_tile(
            self.b, self.layout[1] == "t", self.swizzle_bytes, self.tile_n, self.tile_k,
            self.cluster_m,
        )  # fmt: skip

    @property
    def fixed_bytes(self) -> int:
        """Shared memory that does not grow with the number of stages."""
        barriers = PARTIALS_BARRIER_BYTES if self.split_k > 1 else 0
        vectors = self.warpgroups * self.vectors_bytes
        return self.staging_bytes + self.partials_bytes + vectors + barriers

    @property
    def smem_limit(self) -> int:
        """Shared memory that a CTA can have."""
        return TWO_CTAS_BYTES if self.ctas_per_sm > 1 else super().smem_limit

    def as_dependent(self) -> "Config":
        """The same for dependent launches, which give each CTA an SM."""
        return replace(self, dependent_launch=True, ctas_per_sm=1)

    def check_values(self) -> None:
        """Refuse fields outside their range. Raises: ConfigError."""
        sm90_rules.check_fields(self)

    def check(self) -> None:
        """Refuse what cannot work, whatever the problem.

        Raises: ConfigError with rule, value, limit and what to try.
        """
        sm90_rules.check(self)

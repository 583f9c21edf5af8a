"""What kernels on tcgen05 have in common: fields of their Configs, and what follows from them."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ptxgen.arch import arch
from ptxgen.config_rules import check_smem, check_values, settle_types
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.layout import TILE_ALIGNMENT, DStaging, OperandTile, align_up, operand_tile
from ptxgen.problem import INTEGERS
from ptxgen.scale_tiles import ScaleTile
from ptxgen.tmem import AccumulatorLayout, TmemMap
from ptxgen.tmem_chunks import SwappedStaging

TARGETS = ("sm_100a", "sm_100f", "sm_103a")
TARGET = "sm_100a"
"""The target where none is asked for."""
CTA_THREADS = 256
"""Four warps with one role each, and four epilogue warps."""
EPILOGUE_WARPS = 4
SWIZZLES = (0, 32, 64, 128)
MAX_STAGES = 32
MAX_CLUSTER_CTAS = 4
ANSWERS = 2
"""Answers of cluster launch control under way: enough to load a tile ahead of the epilogue."""
ANSWER_BYTES = 16
BARRIER_BYTES = 8


@dataclass(frozen=True)
class Tcgen05Config:
    """What may be tuned, and what the text depends on. `str()` is its name."""

    NAME: ClassVar[str]
    """Name of the kernel."""

    a: str
    b: str
    d: str
    layout: str
    scale: str
    target: str = TARGET
    cta_group: int = 1
    """CTAs that work on one MMA: 1, or 2 (a pair along the MMA's rows; it splits both operands)."""
    swap_ab: bool = False
    """Whether B takes the MMA's rows and A its columns, so that few rows of A waste nothing: the
    MMA is as wide as the rows that a tile has."""
    tile_m: int = 128
    """Rows of D of one CTA; swapped: at most."""
    tile_n: int = 128
    """Columns of D of one CTA."""
    tile_k: int = 64
    stages: int = 4
    cluster_m: int = 1
    """CTAs of a cluster along M: they share B tiles."""
    cluster_n: int = 1
    """CTAs of a cluster along N: they share A tiles."""
    accumulators: int = 2
    """Accumulators in tensor memory: with two, a tile's epilogue runs during the next tile."""
    scheduler: str = "static"
    """static: each cluster walks tiles at a fixed step; clc: it takes over tiles not started."""
    swizzle_bytes: int = 128
    """Swizzle of A and B tiles: 0 (none), 32, 64 or 128."""
    store: str = "tma"
    """How D is stored: tma, or global (st.global) for addresses or strides that TMA refuses."""

    def __post_init__(self) -> None:
        """Settle the types of fields. Raises: ConfigError."""
        settle_types(self)

    def __str__(self) -> str:
        return "_".join(self.name_parts)

    @property
    def name_parts(self) -> tuple[str, ...]:
        """The words of the config's name."""
        return (
            self.NAME, self.target.removeprefix("sm_"), self.a, self.b, self.d, self.layout,
            self.scale, *(("swapped",) if self.swap_ab else ()), f"g{self.cta_group}",
            f"{self.tile_m}x{self.tile_n}x{self.tile_k}",
            f"s{self.stages}", f"c{self.cluster_m}x{self.cluster_n}", f"t{self.accumulators}",
            self.scheduler, f"swizzle{self.swizzle_bytes}", self.store,
        )  # fmt: skip

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def rows(self) -> int:
        """Rows of the MMA that one CTA holds."""
        return self.tile_n if self.swap_ab else self.tile_m

    @property
    def columns(self) -> int:
        """Columns of the MMA; swapped: at most."""
        return self.tile_m if self.swap_ab else self.tile_n

    @property
    def cluster_rows(self) -> int:
        """CTAs of a cluster along the MMA's rows."""
        return self.cluster_n if self.swap_ab else self.cluster_m

    @property
    def cluster_columns(self) -> int:
        """CTAs of a cluster along the MMA's columns."""
        return self.cluster_m if self.swap_ab else self.cluster_n

    @property
    def operands(self) -> tuple[str, str]:
        """What the MMA takes as its rows and as its columns: a or b."""
        return ("b", "a") if self.swap_ab else ("a", "b")

    @property
    def view(self) -> Self:
        """The tile and the cluster as the MMA sees them, for templates: m are rows, n columns."""
        return replace(
            self, tile_m=self.rows, tile_n=self.columns, cluster_m=self.cluster_rows,
            cluster_n=self.cluster_columns,
        )  # fmt: skip

    @property
    def mma_m(self) -> int:
        """Rows of one MMA, over all CTAs that take part."""
        return self.rows * self.cta_group

    @property
    def row_tile(self) -> OperandTile:
        """Tile of the MMA's first operand in one CTA: its own rows."""
        return self._operand_tile(self.operands[0], self.rows, self.cluster_columns)

    @property
    def column_tile(self) -> OperandTile:
        """Tile of the MMA's second operand in one CTA: all columns, or half of them in a pair."""
        return self._operand_tile(
            self.operands[1], self.columns // self.cta_group, self.cluster_rows // self.cta_group
        )

    def _operand_tile(self, operand: str, extent: int, slices: int) -> OperandTile:
        k_major = self.layout[0] == "n" if operand == "a" else self.layout[1] == "t"
        kind = getattr(self, operand)
        return operand_tile(kind, k_major, self.swizzle_bytes, extent, self.tile_k, slices)

    @property
    def a_tile(self) -> OperandTile:
        """A's tile in shared memory of one CTA."""
        return self.column_tile if self.swap_ab else self.row_tile

    @property
    def b_tile(self) -> OperandTile:
        """B's tile in shared memory of one CTA."""
        return self.row_tile if self.swap_ab else self.column_tile

    @property
    def column_step(self) -> int:
        """What the columns of an MMA are a multiple of.

        Steps of 8 with 128 rows are untested anywhere: refused. A pair's halves of transposed bytes
        begin at whole 16 bytes, which TMA asks of the first coordinate.
        """
        tile = self.column_tile
        transposed_bytes = not tile.k_major and tile.dtype.bits == 8
        integers = self.a in INTEGERS
        if self.cta_group == 2 and (transposed_bytes or integers):
            return 32
        if transposed_bytes or (integers and self.columns > 32):
            return 16
        return 8 if self.mma_m == 64 else 16

    @property
    def scale_tiles(self) -> tuple[ScaleTile, ...]:
        """Scales that the MMA itself applies, of its rows and columns; none in most kernels."""
        return ()

    @property
    def accumulator(self) -> AccumulatorLayout:
        """Where this CTA's part of D stands in tensor memory."""
        return AccumulatorLayout.of(self.cta_group, self.rows, self.columns)

    @property
    def tmem_regions(self) -> list[tuple[str, int, str]]:
        """(name, columns, what) of everything in tensor memory."""
        columns = self.accumulator.columns
        return [(f"d[{i}]", columns, "accumulator") for i in range(self.accumulators)]

    @property
    def tmem(self) -> TmemMap:
        """Tensor memory of one CTA.

        Raises: ConfigError if it does not fit.
        """
        return TmemMap.lay_out(self.tmem_regions)

    @property
    def staging(self) -> DStaging | SwappedStaging | None:
        """How a warp's part of D goes through shared memory; None if it does not."""
        if self.store != "tma":
            return None
        if self.swap_ab:
            return self.swapped_staging
        layout = self.accumulator
        return DStaging(dtype(self.d), layout.columns, layout.warp_rows)

    @property
    def swapped_staging(self) -> SwappedStaging:
        """In what pieces a warp takes a swapped accumulator: as fine as the columns of an MMA."""
        return SwappedStaging(self.accumulator.warp_rows, min(16, self.column_step))

    @property
    def warp_buffer_bytes(self) -> int:
        """One staging buffer of one warp."""
        return self.staging.buffer_bytes if self.staging else 0

    @property
    def warp_staging_bytes(self) -> int:
        """All staging buffers of one warp."""
        return self.staging.NUM_BUFFERS * self.warp_buffer_bytes if self.staging else 0

    @property
    def staging_bytes(self) -> int:
        """Shared memory through which D is stored."""
        return EPILOGUE_WARPS * self.warp_staging_bytes

    @property
    def stage_sizes(self) -> tuple[tuple[str, int, str], ...]:
        """(name, bytes, what) of the parts of one stage; each begins at a multiple of 1024."""
        tiles = zip(self.operands, (self.row_tile, self.column_tile), strict=True)
        parts = [(name, tile.nbytes, f"{name.upper()} tile") for name, tile in tiles]
        for scales in self.scale_tiles:
            what = f"scales of {scales.operand.upper()}"
            parts.append((f"sf{scales.operand}", scales.nbytes, what))
        return tuple(parts)

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage."""
        return sum(align_up(nbytes, TILE_ALIGNMENT) for _, nbytes, _ in self.stage_sizes)

    @property
    def tx_bytes(self) -> int:
        """What the full barrier counts down for one k-tile, over all CTAs that take part."""
        scale_bytes = sum(tile.nbytes for tile in self.scale_tiles)
        return self.cta_group * (self.row_tile.tx_bytes + self.column_tile.tx_bytes + scale_bytes)

    @property
    def barrier_counts(self) -> dict[str, int]:
        """Kinds of mbarriers and how many of each."""
        counts = {
            "full": self.stages,
            "empty": self.stages,
            "tmem_full": self.accumulators,
            "tmem_empty": self.accumulators,
        }
        if self.scheduler == "clc":
            counts |= {"answered": ANSWERS, "read": ANSWERS}
        return counts

    @property
    def scheduling_sizes(self) -> dict[str, tuple[int, str]]:
        """Shared memory through which tiles are handed out: name -> (bytes, what)."""
        if self.scheduler != "clc":
            return {}
        return {"answer": (ANSWERS * ANSWER_BYTES, "which tile comes next")}

    @property
    def offsets(self) -> dict[str, int]:
        """Byte offsets in dynamic shared memory of what follows the stages, and of its end."""
        offsets, place = {}, self.stages * self.stage_bytes
        offsets["d"] = place
        place += self.staging_bytes
        for name, (nbytes, _) in self.scheduling_sizes.items():
            offsets[name] = place
            place += nbytes
        for name, count in self.barrier_counts.items():
            offsets[name] = place
            place += BARRIER_BYTES * count
        offsets["tmem_slot"] = place
        offsets["end"] = place + 8
        return offsets

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory that one CTA uses."""
        return self.offsets["end"]

    @property
    def stages_that_fit(self) -> int:
        """Stages that shared memory has room for, whatever `stages` says."""
        per_stage = self.stage_bytes + 2 * BARRIER_BYTES
        return (arch(self.target).smem_bytes - self.smem_bytes) // per_stage + self.stages

    def check_values(self) -> None:
        """Refuse fields outside their range.

        Raises: ConfigError.
        """
        allowed: dict[str, Collection[object]] = {
            "target": TARGETS,
            "cta_group": (1, 2),
            "swap_ab": (False, True),
            "tile_n" if self.swap_ab else "tile_m": (64, 128),
            "stages": range(1, MAX_STAGES + 1),
            "cluster_m": (1, 2, 4),
            "cluster_n": (1, 2, 4),
            "accumulators": (1, 2),
            "scheduler": ("static", "clc"),
            "swizzle_bytes": SWIZZLES,
            "store": ("tma", "global"),
        }
        check_values(self, allowed)
        if self.cluster_ctas > MAX_CLUSTER_CTAS or self.cluster_rows % self.cta_group:
            along, hint = (
                ("N", f"1x{self.cta_group}") if self.swap_ab else ("M", f"{self.cta_group}x1")
            )
            raise ConfigError(
                f"cluster {self.cluster_m}x{self.cluster_n} must have at most {MAX_CLUSTER_CTAS} "
                f"CTAs, and whole pairs along {along} with cta_group=2; try {hint}"
            )
        if self.swap_ab and self.cta_group == 2 and self.rows == 64:
            raise ConfigError(
                f"tile_n={self.tile_n} of a swapped pair must be 128: with 64 rows in each CTA the "
                "pair's halves of N change with the rows that a tile has; try cta_group=1"
            )
        if self.swap_ab and self.store == "tma" and dtype(self.d).bytes != 2:
            raise ConfigError(
                f"store=tma with swap_ab transposes 16-bit values, got d={self.d}; try store=global"
            )

    def check_memory(self) -> None:
        """Refuse what does not fit into shared memory and tensor memory, or not into its slices.

        Raises: ConfigError.
        """
        for name, tile in (("tile_m", self.a_tile), ("tile_n", self.b_tile)):
            outer = tile.rows if tile.k_major else tile.k
            what = name if tile.k_major else "tile_k"
            if tile.slices > 1 and outer % (8 * tile.slices):
                raise ConfigError(
                    f"{what}={getattr(self, what)} leaves {outer} rows of a box for {tile.slices} "
                    f"CTAs of the cluster, which each load whole groups of 8; try a larger {what}"
                )
        _ = self.tmem
        check_smem(self, self.target)

"""Config of gemm_sm100_blockscaled: what may be tuned, and which combinations are legal."""

from dataclasses import dataclass, replace
from typing import ClassVar

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.layout import OperandTile, align_up
from ptxgen.micro_kinds import MICRO_KINDS, check_micro_kind
from ptxgen.scale_tiles import ATOM_ROWS, ATOM_SCALES, ScaleTile, num_atoms
from ptxgen.tcgen05_config import Tcgen05Config
from ptxgen.tmem import TMEM_COLUMNS

NAME = "gemm_sm100_blockscaled"
TILE_K_BYTES = 128
"""Shared memory that one row of a k-tile takes: one row of the widest swizzle."""
TILE_N_STEP = 64
"""Tiles begin at whole or half atoms of scales. Finer steps are not known to work on hardware."""


@dataclass(frozen=True)
class ScaleRead:
    """Where one MMA of a k-tile finds its scales, in the columns of the k-tile's slot."""

    k: str
    """First and last k of the k-tile."""
    row_columns: str
    """First and last column of the scales of the MMA's rows."""
    column_columns: str
    """Likewise of its columns."""
    scale_bytes: str
    """Bytes of a column's words."""


@dataclass(frozen=True)
class Config(Tcgen05Config):
    """What may be tuned, and what the text depends on. `str()` is its name."""

    NAME: ClassVar[str] = NAME

    tile_k: int = 128
    kind: str = "mxf8f6f4"
    """The MMA's kind: mxf8f6f4; or for e2m1 mxf4 (mx32) or mxf4nvf4 (mx32 or nv16)."""
    scale_slots: int = 4
    """k-tiles whose scales are in tensor memory at once, at most `stages`."""

    @property
    def name_parts(self) -> tuple[str, ...]:
        """The words of the config's name."""
        parts = super().name_parts
        return (*parts[:2], self.kind, *parts[2:], f"f{self.scale_slots}")

    @property
    def is_fp4(self) -> bool:
        """Whether the kind takes two e2m1 from a byte; mxf8f6f4 wants each in a byte of its own."""
        return MICRO_KINDS[self.kind].is_fp4

    def _operand_tile(self, operand: str, extent: int, slices: int) -> OperandTile:
        """A tile, in bytes along K if the kind is fp4."""
        tile = super()._operand_tile(operand, extent, slices)
        return replace(tile, dtype=dtype("u8"), k=self.tile_k // 2) if self.is_fp4 else tile

    @property
    def mma_k(self) -> int:
        """K of one MMA, in elements."""
        return MICRO_KINDS[self.kind].mma_k

    @property
    def scales_per_mma(self) -> int:
        """Scales along K of one MMA: 1, 2 or 4."""
        return MICRO_KINDS[self.kind].scales_per_mma(self.scale)

    @property
    def atoms(self) -> int:
        """Atoms along K that hold the scales of one k-tile."""
        scales = self.tile_k // self.mma_k * self.scales_per_mma
        return 1 if self.scale == "mx128" else num_atoms(scales, ATOM_SCALES)

    @property
    def scale_tiles(self) -> tuple[ScaleTile, ...]:
        """Scales of one k-tile: of this CTA's rows of the MMA, and of all its columns."""
        extents = zip(self.operands, (self.rows, self.columns), strict=True)
        return tuple(ScaleTile(o, num_atoms(n, ATOM_ROWS), self.atoms) for o, n in extents)

    @property
    def scale_reads(self) -> tuple[ScaleRead, ...]:
        """Which scales each MMA of a k-tile reads."""
        found, rows = [], self.scale_tiles[0]
        for step in range(self.tile_k // self.mma_k):
            atom, byte = divmod(step * self.scales_per_mma, ATOM_SCALES)
            spans = []
            for tile, start in zip(self.scale_tiles, (0, rows.columns), strict=True):
                first = start + tile.column(0, 0 if self.scale == "mx128" else atom)
                spans.append(f"{first}..{first + tile.columns // self.atoms - 1}")
            last = byte + self.scales_per_mma - 1
            taken = "k-tile % 4" if self.scale == "mx128" else f"{byte}..{last}"
            k = step * self.mma_k
            found.append(ScaleRead(f"{k}..{k + self.mma_k - 1}", spans[0], spans[1], taken))
        return tuple(found)

    @property
    def scale_columns(self) -> int:
        """Columns of tensor memory for the scales of one k-tile."""
        return sum(tile.columns for tile in self.scale_tiles)

    @property
    def tmem_regions(self) -> list[tuple[str, int, str]]:
        """(name, columns, what) of everything in tensor memory."""
        scales = [
            (f"sf{tile.operand}[{slot}]", tile.columns, f"scales of {tile.operand.upper()}")
            for slot in range(self.scale_slots)
            for tile in self.scale_tiles
        ]
        return super().tmem_regions + scales

    @property
    def recycles_scales(self) -> bool:
        """Whether slots of scales are fewer than stages, so that they need a ring of their own."""
        return self.scale_slots < self.stages

    @property
    def barrier_counts(self) -> dict[str, int]:
        """Kinds of mbarriers and how many of each."""
        counts = super().barrier_counts
        return counts | {"scales_read": self.scale_slots} if self.recycles_scales else counts

    @property
    def stages_that_fit(self) -> int:
        """Stages that shared memory has room for, whatever `stages` says."""
        return super().stages_that_fit - (1 if self.recycles_scales else 0)

    @property
    def slots_that_fit(self) -> int:
        """Slots of scales that tensor memory has room for beside the accumulators."""
        taken = self.accumulators * self.accumulator.columns
        return max(0, (TMEM_COLUMNS - taken) // self.scale_columns)

    def check(self) -> None:
        """Refuse what cannot work, whatever the problem.

        Raises: ConfigError with rule, value, limit and what to try.
        """
        self.check_values()
        check_kind(self)
        check_shape(self)
        slots = self.scale_slots
        if isinstance(slots, bool) or not 1 <= slots <= self.stages:
            raise ConfigError(
                f"scale_slots={slots} must be from 1 to stages={self.stages}, since a k-tile's "
                f"scales leave their stage with its MMAs; try scale_slots={self.stages}"
            )
        if slots > self.slots_that_fit:
            raise ConfigError(
                f"scale_slots={slots} of {self.scale_columns} columns and {self.accumulators} "
                f"accumulator(s) of {self.accumulator.columns} need more than the {TMEM_COLUMNS} "
                f"columns of tensor memory; try scale_slots<={self.slots_that_fit}"
                if self.slots_that_fit
                else f"{self.accumulators} accumulator(s) of {self.accumulator.columns} columns "
                f"leave no room for scales in the {TMEM_COLUMNS} columns of tensor memory; try "
                "accumulators=1 or a smaller tile_n"
            )
        self.check_memory()


def check_kind(config: Config) -> None:
    """Formats, scales and layouts that the kind has.

    Raises: ConfigError.
    """
    check_micro_kind(config.kind, config.a, config.b, config.scale)
    if config.swizzle_bytes != TILE_K_BYTES:
        raise ConfigError(
            f"swizzle={config.swizzle_bytes or 'none'} must be {TILE_K_BYTES}: a k-tile is one row "
            f"of it, which whole atoms of scales cover; try swizzle={TILE_K_BYTES}"
        )
    tile_k = 2 * TILE_K_BYTES if config.is_fp4 else TILE_K_BYTES
    if config.tile_k != tile_k:
        raise ConfigError(
            f"tile_k={config.tile_k} must be {tile_k} for kind={config.kind}; try tile_k={tile_k}"
        )


def check_shape(config: Config) -> None:
    """Rows and columns that go with whole or half atoms of scales.

    Raises: ConfigError.
    """
    names = ("tile_n", "tile_m") if config.swap_ab else ("tile_m", "tile_n")
    if config.rows != ATOM_ROWS:
        raise ConfigError(
            f"{names[0]}={config.rows} must be {ATOM_ROWS}: block-scaled MMAs have 128 rows for "
            "each CTA, and half atoms of scales are not known to work; try "
            f"{names[0]}={ATOM_ROWS}"
        )
    n = config.columns
    if isinstance(n, bool) or n % TILE_N_STEP or not TILE_N_STEP <= n <= 256:
        raise ConfigError(
            f"{names[1]}={n} must be a multiple of {TILE_N_STEP} from {TILE_N_STEP} to 256, so "
            f"that tiles begin at whole or half atoms of scales; try {names[1]}="
            f"{fitting_columns(n)}"
        )


def fitting_columns(n: int) -> int:
    """The nearest legal number of columns from n on."""
    return min(256, align_up(max(n, TILE_N_STEP), TILE_N_STEP))

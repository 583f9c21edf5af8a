"""Config of gemm_mma: what may be tuned, and which combinations are legal."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from ptxgen.arch import arch
from ptxgen.config_rules import check_smem, check_values, settle_types
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.layout import align_up
from ptxgen.micro_kinds import MICRO_KINDS, check_micro_kind, micro_kind
from ptxgen.problem import FP8, MICRO_SCALES, NARROW_FLOATS
from ptxgen.scale_tiles import ATOM_SCALES
from ptxgen.warp_scales import WarpScales
from ptxgen.warp_schedule import BLOCK_REGISTERS
from ptxgen.warp_tiles import ASYNC_COPY_BYTES, BANKS_BYTES, BLOCK_ROWS, CHUNK_BYTES, WarpTile

NAME = "gemm_mma"
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
TARGET = "sm_90a"
"""The target where none is asked for."""
FP8_TARGET = 89
"""First compute capability with FP8 in mma.sync."""
WARP_THREADS = 32
MAX_STAGES = 8
MIN_STAGES = 3
"""What is loaded through registers is stored one k-tile later and read after one more barrier."""
OVERHEAD_REGISTERS = 45
"""Registers for all but accumulators, fragments and what copies hold: measured with ptxas 13.0."""
EMULATED_STEP_REGISTERS = 40
"""Instead of these, for each k-step of a k-tile, where ptxas turns FP8 MMAs into f16 ones: it
converts fragments early. Measured likewise."""
EMULATED_HELD_REGISTERS = 32
"""More of them where copies hold registers meanwhile."""
MAX_PASSES = 16
"""Units of one operand that a thread may copy per k-tile; more of them cost registers."""
NATIVE_FP8 = ("sm_89", "sm_120a")
"""Targets whose tensor cores take FP8 in mma.sync; others convert to f16."""
TILE_K_BYTES = (64, 128)
OPERANDS = ("bf16", "f16", *NARROW_FLOATS)
OUTPUTS = ("bf16", "f16", "f32")
SCALES = ("none", "tensor", "rowcol")
MICRO_TARGETS = ("sm_120a",)
"""Targets whose mma.sync has formats below 8 bits and block scales."""
SMALLER_KIND = "f8f6f4"
"""The kind that multiplies formats below 8 bits without scales."""
FP4_KINDS = tuple(name for name, kind in MICRO_KINDS.items() if kind.is_fp4)
"""Kinds that take two e2m1 from a byte."""
PACKINGS = {8: (1, 1), 6: (4, 3), 4: (2, 1)}
"""Bits of an element -> how many share how many bytes."""


@dataclass(frozen=True)
class Config:
    """What may be tuned, and what the text depends on. `str()` is its name."""

    a: str
    b: str
    d: str
    layout: str
    scale: str
    accumulate: str
    target: str = TARGET
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 32
    stages: int = 4
    warps_m: int = 2
    """Warps side by side along M."""
    warps_n: int = 2
    """Warps side by side along N."""
    a_copy_bytes: int = 16
    """Bytes of one load of A, which divide base and stride: 16, 8 or 4 by cp.async, else through
    registers."""
    b_copy_bytes: int = 16
    """Likewise of B."""
    d_store_bytes: int = 4
    """Bytes of one store of D: one element, or two where base and stride are multiples of that."""
    ctas_per_sm: int = 1
    """CTAs that an SM must hold at once: bounds the registers of a thread."""
    kind: str = ""
    """The MMA's kind: mxf8f6f4, mxf4 or mxf4nvf4 where it applies scales, f8f6f4 for formats below
    8 bits without; else none."""

    def __post_init__(self) -> None:
        """Settle the types of fields. Raises: ConfigError."""
        settle_types(self)

    def __str__(self) -> str:
        return "_".join(
            (
                NAME, self.target, self.a, self.b, self.d, self.layout, self.scale, self.accumulate,
                f"{self.tile_m}x{self.tile_n}x{self.tile_k}", f"s{self.stages}",
                f"w{self.warps_m}x{self.warps_n}",
                f"copy{self.a_copy_bytes}x{self.b_copy_bytes}", f"store{self.d_store_bytes}",
                f"o{self.ctas_per_sm}", *((self.kind,) if self.kind else ()),
            )
        )  # fmt: skip

    @property
    def unit(self) -> str:
        """The Tensor Core's instruction, as ptxgen.verification models it."""
        return "mma_native" if self.target in NATIVE_FP8 else "mma"

    @property
    def threads(self) -> int:
        """Threads of one CTA."""
        return WARP_THREADS * self.warps_m * self.warps_n

    @property
    def cluster_m(self) -> int:
        """CTAs of a cluster along M, as the cost model counts them: there are no clusters here."""
        return 1

    @property
    def cluster_n(self) -> int:
        """CTAs of a cluster along N."""
        return 1

    @property
    def warpgroups(self) -> int:
        """Groups of four warps, as the cost model counts them."""
        return max(1, self.warps_m * self.warps_n // 4)

    @property
    def swizzle_bytes(self) -> int:
        """Bytes of a row of A's tile that one swizzle pattern covers."""
        return min(128, self.a_tile.pitch_bytes)

    @property
    def a_tile(self) -> WarpTile:
        """A's tile in shared memory."""
        return self._tile("a", self.layout[0] == "n", self.tile_m, self.a_copy_bytes, self.warps_m)

    @property
    def b_tile(self) -> WarpTile:
        """B's tile in shared memory."""
        return self._tile("b", self.layout[1] == "t", self.tile_n, self.b_copy_bytes, self.warps_n)

    def _tile(self, name: str, k_major: bool, rows: int, copy_bytes: int, warps: int) -> WarpTile:
        kind = dtype(getattr(self, name))
        tile = WarpTile(
            name, kind, k_major, rows, self.tile_k, copy_bytes, self.threads, warps,
            PACKINGS.get(kind.bits, (1, 1)),
        )  # fmt: skip
        if self.is_fp4:
            return replace(tile, dtype=dtype("u8"), k=self.tile_k // 2)
        if kind.is_packed:
            return replace(tile, dtype=dtype("u8"), slot_bytes=CHUNK_BYTES * kind.bits // 8)
        return tile

    @property
    def is_fp4(self) -> bool:
        """Whether the MMA takes two e2m1 from a byte."""
        return self.kind in FP4_KINDS

    @property
    def scale_tiles(self) -> tuple[WarpScales, ...]:
        """Scales of A and B that MMAs apply; none with the scales that the epilogue applies."""
        if self.scale not in MICRO_SCALES:
            return ()
        size = MICRO_SCALES[self.scale][0]
        place, found = self.a_tile.nbytes + self.b_tile.nbytes, []
        for tile in (self.a_tile, self.b_tile):
            found.append(
                WarpScales(
                    f"sf{tile.name}", tile.name, tile.rows, tile.warp_rows, self.threads,
                    max(1, self.tile_k // (size * ATOM_SCALES)),
                    MICRO_KINDS[self.kind].scales_per_mma(self.scale), size == self.tile_k, place,
                )
            )  # fmt: skip
            place += found[-1].nbytes
        return tuple(found)

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage."""
        scales = sum(x.nbytes for x in self.scale_tiles)
        return self.a_tile.nbytes + self.b_tile.nbytes + align_up(scales, BANKS_BYTES)

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of one CTA."""
        return self.stages * self.stage_bytes

    @property
    def stages_that_fit(self) -> int:
        """Stages that shared memory has room for, whatever `stages` says."""
        return arch(self.target).smem_bytes // self.stage_bytes

    @property
    def num_registers(self) -> int:
        """Accumulator registers of one thread."""
        return self.tile_m * self.tile_n // self.threads

    def check(self) -> None:
        """Refuse what cannot work, whatever the problem.

        Raises: ConfigError with rule, value, limit and what to try.
        """
        self.check_kind()
        d_bytes = dtype(self.d).bytes
        tiles = tuple(1 << i for i in range(4, 9))
        allowed: dict[str, Collection[object]] = {
            "target": TARGETS,
            "tile_m": tiles,
            "tile_n": tiles,
            "tile_k": self.k_tiles,
            "stages": tuple(range(MIN_STAGES, MAX_STAGES + 1)),
            "warps_m": (1, 2, 4, 8),
            "warps_n": (1, 2, 4, 8),
            "a_copy_bytes": copy_sizes(self.a, self.is_fp4),
            "b_copy_bytes": copy_sizes(self.b, self.is_fp4),
            "d_store_bytes": (d_bytes, 2 * d_bytes),
            "ctas_per_sm": (1, 2, 3, 4),
        }
        check_values(self, allowed)
        self._check_warps()
        self._check_copies()
        self._check_registers()
        check_smem(self, self.target, MIN_STAGES)

    @property
    def k_tiles(self) -> tuple[int, ...]:
        """Legal tile_k: whole rows of a tile, and whole words of scales."""
        if self.is_fp4:
            return tuple(2 * b for b in TILE_K_BYTES)
        if self.scale in MICRO_SCALES:
            return (ATOM_SCALES * MICRO_SCALES["mx32"][0],)
        return tuple(b // dtype(self.a).bytes for b in TILE_K_BYTES)

    def check_kind(self) -> None:
        """Refuse kinds, formats and scales that the target or the MMA lacks.

        Raises: ConfigError.
        """
        if self.scale in MICRO_SCALES:
            check_micro_kind(self.kind, self.a, self.b, self.scale)
        elif self.kind != mma_kind(self.a, self.b, self.scale):
            needed = mma_kind(self.a, self.b, self.scale)
            raise ConfigError(
                f"kind={self.kind or 'none'} must be {needed} for {self.a} x {self.b} "
                f"with scale={self.scale}; try kind={needed}"
                if needed
                else f"kind={self.kind} must be none for {self.a} x {self.b} with "
                f"scale={self.scale}; try without it"
            )
        check_target(self.target, self.a, self.b, self.scale)

    def _check_warps(self) -> None:
        if self.warps_m * self.warps_n > 8:
            raise ConfigError(
                f"warps_m={self.warps_m} x warps_n={self.warps_n} must be at most 8 warps; "
                "try 2 x 2"
            )
        for axis in ("m", "n"):
            tile, warps = getattr(self, f"tile_{axis}"), getattr(self, f"warps_{axis}")
            if tile // warps < BLOCK_ROWS:
                raise ConfigError(
                    f"tile_{axis}={tile} must give each of warps_{axis}={warps} warps at least "
                    f"{BLOCK_ROWS}; try warps_{axis}={max(1, tile // BLOCK_ROWS)}"
                )

    def _check_copies(self) -> None:
        for name, tile in (("tile_m", self.a_tile), ("tile_n", self.b_tile)):
            if tile.nbytes < tile.threads * tile.unit_bytes:
                raise ConfigError(
                    f"{name}={tile.rows} with tile_k={tile.k} is {tile.nbytes} B, less than one "
                    f"copy of {tile.unit_bytes} B for each of {tile.threads} threads; try a larger "
                    "tile_k or fewer warps"
                )
            if tile.nbytes > MAX_PASSES * tile.threads * tile.unit_bytes:
                raise ConfigError(
                    f"{name}={tile.rows} with tile_k={tile.k} is {tile.nbytes} B, more than "
                    f"{MAX_PASSES} copies of {tile.unit_bytes} B for each of {tile.threads} "
                    "threads; try a smaller tile or more warps"
                )
            if tile.units_per_row > tile.threads:
                raise ConfigError(
                    f"{name}={tile.rows}: a stored row of the tile has {tile.units_per_row} units "
                    f"of {tile.unit_bytes} B, which {tile.threads} threads cannot copy at once; "
                    "try more warps"
                )

    def _check_registers(self) -> None:
        a, b = self.a_tile, self.b_tile
        sets = 2 if self.accumulate == "promoted" else 1
        held = sum(t.held_registers for t in (a, b) if t.copy_bytes not in ASYNC_COPY_BYTES)
        fragments = 2 * BLOCK_REGISTERS * (a.num_blocks + b.num_blocks)
        fragments += 2 * sum(x.num_registers + x.num_passes for x in self.scale_tiles)
        emulated = self.a in FP8 and self.target not in NATIVE_FP8
        overhead = EMULATED_STEP_REGISTERS * a.num_steps if emulated else OVERHEAD_REGISTERS
        if emulated and held:
            overhead += EMULATED_HELD_REGISTERS
        needed = sets * self.num_registers + held + fragments + overhead
        chip = arch(self.target)
        limit = min(
            chip.max_registers_per_thread,
            chip.registers_per_sm // (self.threads * self.ctas_per_sm) // 8 * 8,
        )
        if needed > limit:
            raise ConfigError(
                f"tile {self.tile_m}x{self.tile_n}x{self.tile_k} with {self.warps_m}x"
                f"{self.warps_n} warps, accumulate={self.accumulate} and ctas_per_sm="
                f"{self.ctas_per_sm} needs about {needed} registers per thread, it has {limit}; "
                "try a smaller tile or more warps"
            )


def check_target(target: str, a: str, b: str, scale: str) -> None:
    """Refuse formats and scales that mma.sync of `target` lacks.

    Raises: ConfigError.
    """
    kind = mma_kind(a, b, scale)
    if kind and target not in MICRO_TARGETS:
        micro = ", ".join(MICRO_TARGETS)
        raise ConfigError(
            f"{a} x {b} with scale={scale} on {target}: mma.sync has kind::{kind} on {micro} only; "
            f"try arch={micro}, or arch=sm_100a, where tcgen05 has it, or bf16, f16 or FP8 with "
            f"scale {', '.join(SCALES)}"
        )
    if {a, b} & set(FP8) and _capability(target) < FP8_TARGET:
        raise ConfigError(
            f"{a} x {b} on {target}: mma.sync has FP8 from sm_{FP8_TARGET} on; try bf16 or f16"
        )


def _capability(target: str) -> int:
    return int("".join(c for c in target if c.isdigit()))


def mma_kind(a: str, b: str, scale: str) -> str:
    """The MMA's kind that formats and scales call for; none where mma.sync has them without."""
    if scale in MICRO_SCALES:
        return micro_kind(a, b, scale)
    return SMALLER_KIND if dtype(a).is_packed or dtype(b).is_packed else ""


def copy_sizes(name: str, is_fp4: bool) -> tuple[int, ...]:
    """Legal bytes of one load of an operand of dtype `name`: what is unpacked comes by cp.async, in
    parts that 16 elements are made of."""
    kind = dtype(name)
    if kind.is_packed and not is_fp4:
        return {6: (4,), 4: (8, 4)}[kind.bits]
    return tuple(c for c in (16, 8, 4, 2, 1) if c >= kind.bytes)

"""wgmma_issue_sm90: wgmma on operands that stay in shared memory, to measure the MMA ceiling.

Pairs with templates/wgmma_issue_sm90.ptx.j2.
"""

from dataclasses import dataclass

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.launch import Buffer, Launch, Param
from ptxgen.layout import MMA_M, OperandTile, SmemRegion
from ptxgen.plans import Plan

NAME = "wgmma_issue_sm90"
TARGET = "sm_90a"
VERSION = "8.0"
WARPGROUP_THREADS = 128
SWIZZLE_BYTES = 128
STAGES = 4
"""Operand tiles in shared memory, read in turn, so that the bits switch as in a GEMM."""


@dataclass(frozen=True)
class Config:
    """What the text depends on."""

    a: str = "e4m3"
    """dtype of both operands."""
    mma_n: int = 256
    warpgroups: int = 2

    def __str__(self) -> str:
        return f"{NAME}_{self.a}_n{self.mma_n}_w{self.warpgroups}"

    @property
    def a_tile(self) -> OperandTile:
        """A of one stage: 64 rows for each warpgroup."""
        rows = MMA_M * self.warpgroups
        return OperandTile(dtype(self.a), True, SWIZZLE_BYTES, rows, self.tile_k)

    @property
    def b_tile(self) -> OperandTile:
        """B of one stage."""
        return OperandTile(dtype(self.a), True, SWIZZLE_BYTES, self.mma_n, self.tile_k)

    @property
    def tile_k(self) -> int:
        """k of one stage, in elements."""
        return SWIZZLE_BYTES // dtype(self.a).bytes

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage."""
        return self.a_tile.nbytes + self.b_tile.nbytes


def flop(config: Config, num_ctas: int, num_tiles: int, num_k_tiles: int) -> int:
    """Floating-point operations of one launch."""
    rows = MMA_M * config.warpgroups
    return 2 * rows * config.mma_n * config.tile_k * num_k_tiles * num_tiles * num_ctas


def plan(num_tiles: int, num_k_tiles: int, num_ctas: int, config: Config | None = None) -> Plan:
    """A launch in which each CTA computes `num_tiles` tiles of `num_k_tiles` k-tiles.

    The accumulators start anew with each tile.

    Raises: ConfigError if a tile has no k-tile.
    """
    config = config or Config()
    if num_k_tiles < 1:
        raise ConfigError(f"num_k_tiles={num_k_tiles} must be at least 1; try 64")
    threads = WARPGROUP_THREADS * config.warpgroups
    a_tile, b_tile = config.a_tile, config.b_tile
    operand_bytes = STAGES * config.stage_bytes
    registers = config.mma_n // 2
    launch = Launch(
        entry=str(config),
        grid_ctas=(num_ctas, 1, 1),
        cta_threads=(threads, 1, 1),
        dynamic_smem_bytes=operand_bytes,
        params=(
            Param("data", "pointer", "data"),
            Param("sums", "pointer", "sums"),
            Param("num_tiles", "u32", num_tiles),
            Param("num_k_tiles", "u32", num_k_tiles),
        ),
        buffers=(
            Buffer("data", operand_bytes, "in", f"random:{config.a}:0"),
            Buffer("sums", 4 * threads * num_ctas, "out"),
        ),
    )
    return Plan(
        kernel=NAME, entry=str(config), target=TARGET, version=VERSION, launch=launch,
        smem_map=tuple(
            SmemRegion(f"{name}[{i}]", i * config.stage_bytes + offset, tile.nbytes, what)
            for i in range(STAGES)
            for name, offset, tile, what in (
                ("a", 0, a_tile, "A tile"), ("b", a_tile.nbytes, b_tile, "B tile"),
            )
        ),
        barriers=(),
        parts={},
        fields={
            "mma": f"m64n{config.mma_n}k{a_tile.mma_k}.f32.{config.a}.{config.a}",
            "mma_flags": "1, 1, 0, 0" if dtype(config.a).bytes == 2 else "1, 1",
            "registers": registers,
            "register_indices": list(range(registers)),
            "added_indices": list(range(1, registers)),
            "warpgroups": config.warpgroups,
            "cta_threads": threads,
            "fill_step_bytes": 16 * threads,
            "operand_bytes": operand_bytes,
            "warpgroup_a_bytes": a_tile.mma_m_bytes,
            "b_offset": a_tile.nbytes,
            "a_descriptor": hex(a_tile.descriptor.encode()),
            "b_descriptor": hex(b_tile.descriptor.encode()),
            "stages": STAGES,
            "stage_units": config.stage_bytes >> 4,
            "k_steps": [
                {
                    "a_units": step * a_tile.k_step_bytes >> 4,
                    "b_units": step * b_tile.k_step_bytes >> 4,
                    "accumulate": "1" if step else "%accumulate",
                }
                for step in range(config.tile_k // a_tile.mma_k)
            ],
        },
    )  # fmt: skip

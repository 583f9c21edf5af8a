"""Configs of gemm_mma: what may be chosen, what is refused, and what is chosen by default."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ptxgen.arch import arch
from ptxgen.config_rules import check_smem, check_values, first_legal, with_refusal
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.kernels.agreement import check_known, static_fields
from ptxgen.problem import FP8, Gemm
from ptxgen.warp_schedule import BLOCK_REGISTERS
from ptxgen.warp_tiles import ASYNC_COPY_BYTES, BLOCK_ROWS, WarpTile

NAME = "gemm_mma"
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
TARGET = "sm_90a"
"""The target where none is asked for."""
FP8_TARGET = 89
"""First compute capability with FP8 in mma.sync."""
NUM_SMS = 132
"""SMs of an H100 or H200, when no device is given."""
WARP_THREADS = 32
MAX_STAGES = 8
SMALLEST_SPLIT = 32 * 32
"""Tiles of more elements are halved by default while that leaves at most one per SM."""
RING_BYTES = 1 << 16
"""What small tiles keep under way by more stages than four, by default."""
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
OPERANDS = ("bf16", "f16", *FP8)
OUTPUTS = ("bf16", "f16", "f32")
SCALES = ("none", "tensor", "rowcol")


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

    def __str__(self) -> str:
        return "_".join(
            (
                NAME, self.target, self.a, self.b, self.d, self.layout, self.scale, self.accumulate,
                f"{self.tile_m}x{self.tile_n}x{self.tile_k}", f"s{self.stages}",
                f"w{self.warps_m}x{self.warps_n}",
                f"copy{self.a_copy_bytes}x{self.b_copy_bytes}", f"store{self.d_store_bytes}",
                f"o{self.ctas_per_sm}",
            )
        )  # fmt: skip

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
        return WarpTile(
            "a", dtype(self.a), self.layout[0] == "n", self.tile_m, self.tile_k, self.a_copy_bytes,
            self.threads, self.warps_m,
        )  # fmt: skip

    @property
    def b_tile(self) -> WarpTile:
        """B's tile in shared memory."""
        return WarpTile(
            "b", dtype(self.b), self.layout[1] == "t", self.tile_n, self.tile_k, self.b_copy_bytes,
            self.threads, self.warps_n,
        )  # fmt: skip

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage."""
        return self.a_tile.nbytes + self.b_tile.nbytes

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
        element_bytes = {name: dtype(getattr(self, name)).bytes for name in ("a", "b", "d")}
        tiles = tuple(1 << i for i in range(4, 9))
        allowed: dict[str, Collection[object]] = {
            "target": TARGETS,
            "tile_m": tiles,
            "tile_n": tiles,
            "tile_k": tuple(b // element_bytes["a"] for b in TILE_K_BYTES),
            "stages": tuple(range(MIN_STAGES, MAX_STAGES + 1)),
            "warps_m": (1, 2, 4, 8),
            "warps_n": (1, 2, 4, 8),
            "a_copy_bytes": tuple(c for c in (16, 8, 4, 2, 1) if c >= element_bytes["a"]),
            "b_copy_bytes": tuple(c for c in (16, 8, 4, 2, 1) if c >= element_bytes["b"]),
            "d_store_bytes": (element_bytes["d"], 2 * element_bytes["d"]),
            "ctas_per_sm": (1, 2, 3, 4),
        }
        check_values(self, allowed)
        if self.a in FP8 and _capability(self.target) < FP8_TARGET:
            raise ConfigError(
                f"{self.a} x {self.b} on {self.target}: mma.sync has FP8 from sm_89 on; "
                "try bf16 or f16"
            )
        self._check_warps()
        self._check_copies()
        self._check_registers()
        check_smem(self, self.target, MIN_STAGES)

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


def _capability(target: str) -> int:
    return int("".join(c for c in target if c.isdigit()))


def check_operands(problem: Gemm) -> None:
    """Refuse what mma.sync does not multiply or this kernel does not scale.

    Raises: ConfigError.
    """
    if problem.a not in OPERANDS or problem.b not in OPERANDS or problem.d not in OUTPUTS:
        raise ConfigError(
            f"{NAME} multiplies {', '.join(OPERANDS)} into {', '.join(OUTPUTS)}, got "
            f"a={problem.a}, b={problem.b}, d={problem.d}"
        )
    if problem.scale not in SCALES:
        raise ConfigError(
            f"{NAME} has scale {', '.join(SCALES)}, got {problem.scale}; try arch=sm_90a with FP8 "
            "operands that TMA can address (base and row stride multiples of 16 bytes, layout nt)"
        )


def widest_access(problem: Gemm, operand: str) -> int:
    """Bytes of the widest access, 1 to 16, at which every row of operand a, b or d starts."""
    rows, columns = getattr(problem, f"{operand}_shape")
    element_bytes = dtype(getattr(problem, operand)).bytes
    steps = [getattr(problem, f"{operand}_alignment")]
    if rows > 1:
        steps.append(problem.stride(operand) * element_bytes)
    widest = next(c for c in (16, 8, 4, 2, 1) if all(step % c == 0 for step in steps))
    if operand != "d" and element_bytes < widest < min(ASYNC_COPY_BYTES):
        # Loads through registers are whole, so the last one of a row must not pass its end.
        return widest if columns * element_bytes % widest == 0 else element_bytes
    return widest


def default_config(problem: Gemm, **chosen: int | str) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    check_operands(problem)
    check_known(NAME, Config, chosen)
    values: dict[str, int | str] = dict(static_fields(problem, Config))
    values["a_copy_bytes"] = widest_access(problem, "a")
    values["b_copy_bytes"] = widest_access(problem, "b")
    d_bytes = dtype(problem.d).bytes
    values["d_store_bytes"] = min(2 * d_bytes, max(d_bytes, widest_access(problem, "d")))

    def candidates() -> Iterator[Config]:
        for tile in _default_tiles(problem, chosen):
            config = Config(**{**values, **tile, **chosen})  # type: ignore[arg-type]
            if "stages" not in chosen and config.target in TARGETS and config.stage_bytes:
                wanted = max(4, min(MAX_STAGES, RING_BYTES // config.stage_bytes))
                most = max(MIN_STAGES, min(wanted, config.stages_that_fit))
                config = replace(config, stages=most)
            yield config

    return first_legal(candidates())


def _default_tiles(problem: Gemm, chosen: dict[str, int | str]) -> Iterator[dict[str, int | str]]:
    """Tiles and warps, the best first: no larger than the problem, small enough for all SMs."""
    element_bytes = dtype(problem.a).bytes
    tile_m, tile_n = (
        next((t for t in (16, 32, 64) if size <= t), 128) for size in (problem.m, problem.n)
    )
    while tile_m * tile_n > SMALLEST_SPLIT and 2 * _num_tiles(problem, tile_m, tile_n) <= NUM_SMS:
        tile_m, tile_n = _halved(tile_m, tile_n)
    while True:
        rows, columns = (
            int(chosen.get(name, tile)) for name, tile in (("tile_m", tile_m), ("tile_n", tile_n))
        )
        deep = min(rows, columns) < 32
        for k_bytes in TILE_K_BYTES[::-1] if deep else TILE_K_BYTES[:1]:
            for num_warps in (4, 8):
                warps_m, warps_n = _warps(rows, columns, num_warps)
                yield {
                    "tile_m": tile_m,
                    "tile_n": tile_n,
                    "tile_k": k_bytes // element_bytes,
                    "warps_m": warps_m,
                    "warps_n": warps_n,
                }
        if tile_m == tile_n == BLOCK_ROWS:
            return
        tile_m, tile_n = _halved(tile_m, tile_n)


def _halved(tile_m: int, tile_n: int) -> tuple[int, int]:
    return (tile_m // 2, tile_n) if tile_m >= tile_n else (tile_m, tile_n // 2)


def _warps(tile_m: int, tile_n: int, most: int) -> tuple[int, int]:
    """Up to `most` warps whose parts are as square as can be, as those load the least fragments."""
    pairs = [
        (m, n)
        for m in (1, 2, 4, 8)
        for n in (1, 2, 4, 8)
        if m * n <= most and m * BLOCK_ROWS <= tile_m and n * BLOCK_ROWS <= tile_n
    ]
    return min(pairs or [(1, 1)], key=lambda p: (-p[0] * p[1], tile_m // p[0] + tile_n // p[1]))


def _num_tiles(problem: Gemm, tile_m: int, tile_n: int) -> int:
    return -(-problem.m // tile_m) * -(-problem.n // tile_n)


def configs(problem: Gemm, target: str = TARGET) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    base = default_config(problem, target=target)
    element_bytes = dtype(problem.a).bytes
    for tile_m in (16, 32, 64, 128, 256):
        for tile_n in (16, 32, 64, 128, 256):
            for k_bytes in TILE_K_BYTES:
                for warps_m, warps_n in ((1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (2, 4), (4, 2)):
                    for stages in (3, 4, 6):
                        config = replace(
                            base, tile_m=tile_m, tile_n=tile_n, tile_k=k_bytes // element_bytes,
                            warps_m=warps_m, warps_n=warps_n, stages=stages,
                        )  # fmt: skip
                        yield with_refusal(config)

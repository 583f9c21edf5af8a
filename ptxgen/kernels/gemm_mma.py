"""gemm_mma: dense GEMM on mma.sync, for any stride and alignment, on sm_80 and up.

Pairs with templates/gemm_mma.ptx.j2. It serves what TMA or wgmma cannot: rows of any stride, bases
of any alignment, transposed FP8, GPUs without wgmma. Every warp copies its share of the tiles
(cp.async of 16, 8 or 4 bytes, or single elements through registers) into a ring of stages and runs
mma.sync on fragments that ldmatrix reads. One CTA computes one tile of D.

Accumulation. fast: the accumulator of mma.sync over all of K. promoted: FP32 registers take
partial sums of 128 of K. bf16 and f16 on sm_90: an mma.sync adds 16 products and the accumulator
as one sum, aligned to the largest term, 25 fraction bits, truncated. FP8 on sm_90 (and sm_100,
sm_103) has no instruction of its own: ptxas turns m16n8k32 into conversions to f16 and two chained
f16 MMAs from zero (first the k with k % 4 in {0, 1}, then those with k % 4 in {2, 3}; 25 bits,
truncated), whose sum is added to the accumulator in FP32, rounded to nearest even; another ptxas
may do otherwise. sm_80 sums 16-bit products with 24 bits and splits K; sm_89 sums FP8 products
with 13 bits and splits K. Source: shared/reference/ptx.md A8, measured on an H200; other GPUs
after MMA-Sim.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from ptxgen.arch import arch
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.launch import Buffer, Launch, Param
from ptxgen.layout import SmemRegion
from ptxgen.plans import Plan
from ptxgen.problem import FP8, PROMOTION_K, Gemm
from ptxgen.warp_schedule import (
    BLOCK_REGISTERS,
    DBlock,
    d_blocks,
    fragment_prefix,
    lane_map,
    step,
)
from ptxgen.warp_tiles import ASYNC_COPY_BYTES, BLOCK_ROWS, STEP_BYTES, WarpTile

NAME = "gemm_mma"
UNIT = "mma"
"""The tensor core's instruction, as ptxgen.verification models it."""
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
TARGET = "sm_90a"
"""The target where none is asked for."""
FP8_TARGET = 89
"""First compute capability with FP8 in mma.sync."""
FP8_VERSION = "8.4"
"""First `.version` with FP8 in mma.sync."""
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
RASTER_M_TILES = 8
"""Tiles along M that run side by side, so that their B tiles are read from L2."""
MAX_SIZE = (1 << 31) - 1
"""M, N and K: positions are unsigned 32-bit numbers that may pass the end by less than a tile."""
TILE_K_BYTES = (64, 128)
OPERANDS = ("bf16", "f16", *FP8)
OUTPUTS = ("bf16", "f16", "f32")
SCALES = ("none", "tensor", "rowcol")
ACCUMULATIONS = {"fast": "accumulation_mma_fast", "promoted": "accumulation_mma_promoted"}


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
    def num_registers(self) -> int:
        """Accumulator registers of one thread."""
        return self.tile_m * self.tile_n // self.threads

    def check(self) -> None:
        """Refuse what cannot work, whatever the problem.

        Raises: ConfigError with rule, value, limit and what to try.
        """
        element_bytes = {name: dtype(getattr(self, name)).bytes for name in ("a", "b", "d")}
        tiles = tuple(1 << i for i in range(4, 9))
        for name, allowed in (
            ("target", TARGETS),
            ("tile_m", tiles),
            ("tile_n", tiles),
            ("tile_k", tuple(b // element_bytes["a"] for b in TILE_K_BYTES)),
            ("stages", tuple(range(MIN_STAGES, MAX_STAGES + 1))),
            ("warps_m", (1, 2, 4, 8)),
            ("warps_n", (1, 2, 4, 8)),
            ("a_copy_bytes", tuple(c for c in (16, 8, 4, 2, 1) if c >= element_bytes["a"])),
            ("b_copy_bytes", tuple(c for c in (16, 8, 4, 2, 1) if c >= element_bytes["b"])),
            ("d_store_bytes", (element_bytes["d"], 2 * element_bytes["d"])),
            ("ctas_per_sm", (1, 2, 3, 4)),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or value not in allowed:
                raise ConfigError(f"{name}={value!r} must be one of {', '.join(map(str, allowed))}")
        if self.a in FP8 and _capability(self.target) < FP8_TARGET:
            raise ConfigError(
                f"{self.a} x {self.b} on {self.target}: mma.sync has FP8 from sm_89 on; "
                "try bf16 or f16"
            )
        self._check_warps()
        self._check_copies()
        self._check_registers()
        limit = arch(self.target).smem_bytes
        if self.smem_bytes > limit:
            fit = limit // self.stage_bytes
            hint = f"try stages<={fit}" if fit >= MIN_STAGES else "try a smaller tile"
            raise ConfigError(
                f"stages={self.stages} of tile {self.tile_m}x{self.tile_n}x{self.tile_k} needs "
                f"{self.smem_bytes} B of shared memory, {self.target} has {limit} B; {hint}"
            )

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


def static_fields(problem: Gemm) -> dict[str, str]:
    """The fields of a Config that the problem decides."""
    return {
        "a": problem.a,
        "b": problem.b,
        "d": problem.d,
        "layout": problem.layout,
        "scale": problem.scale,
        "accumulate": problem.accumulate,
    }


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
    _check_formats(problem)
    known = [f.name for f in fields(Config)]
    for name in chosen:
        if name not in known:
            raise ConfigError(f"{NAME} has no {name}; must be one of {', '.join(known)}")
    values: dict[str, int | str] = dict(static_fields(problem))
    values["a_copy_bytes"] = widest_access(problem, "a")
    values["b_copy_bytes"] = widest_access(problem, "b")
    d_bytes = dtype(problem.d).bytes
    values["d_store_bytes"] = min(2 * d_bytes, max(d_bytes, widest_access(problem, "d")))
    refused: ConfigError | None = None
    for tile in _default_tiles(problem, chosen):
        config = Config(**{**values, **tile, **chosen})  # type: ignore[arg-type]
        try:
            if "stages" not in chosen and config.target in TARGETS and config.stage_bytes:
                fit = arch(config.target).smem_bytes // config.stage_bytes
                wanted = max(4, min(MAX_STAGES, RING_BYTES // config.stage_bytes))
                config = replace(config, stages=max(MIN_STAGES, min(wanted, fit)))
            config.check()
        except ConfigError as error:
            refused = refused or error
        else:
            return config
    assert refused is not None
    raise refused


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
                        try:
                            config.check()
                        except ConfigError as error:
                            yield config, str(error)
                        else:
                            yield config, None


def plan(problem: Gemm, config: Config | None = None, num_sms: int = NUM_SMS) -> Plan:
    """Everything that the template prints and a device needs.

    num_sms does not matter here: there is one CTA per tile of D, not one per SM.

    Raises: ConfigError if the config is illegal or does not serve the problem.
    """
    config = config or default_config(problem)
    config.check()
    _check_serves(problem, config)
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=config.target,
        version=_version(config),
        launch=_launch(problem, config),
        smem_map=_smem_map(config),
        barriers=(),
        parts={
            "scheduler": "scheduler_mma",
            "copy_a": _copy_part(config.a_tile),
            "copy_b": _copy_part(config.b_tile),
            "fragments_a": _fragments_part(config.a_tile),
            "fragments_b": _fragments_part(config.b_tile),
            "mainloop": "mainloop_mma",
            "accumulation": ACCUMULATIONS[config.accumulate],
            "scale": "scale_mma_rowcol" if config.scale == "rowcol" else f"scale_{config.scale}",
            "epilogue": (
                "epilogue_mma_elements"
                if config.d_store_bytes == dtype(config.d).bytes
                else "epilogue_mma_pairs"
            ),
        },
        fields=_fields(config),
    )


def _check_formats(problem: Gemm) -> None:
    if problem.a not in OPERANDS or problem.b not in OPERANDS or problem.d not in OUTPUTS:
        raise ConfigError(
            f"{NAME} multiplies {', '.join(OPERANDS)} into {', '.join(OUTPUTS)}, got "
            f"a={problem.a}, b={problem.b}, d={problem.d}"
        )
    if problem.scale not in SCALES:
        raise ConfigError(
            f"{NAME} has scale {', '.join(SCALES)}, got {problem.scale}; try operands that TMA can "
            "address (base and row stride multiples of 16 bytes, layout nt), which other kernels "
            "serve"
        )


def _check_serves(problem: Gemm, config: Config) -> None:
    _check_formats(problem)
    for name, value in static_fields(problem).items():
        if getattr(config, name) != value:
            raise ConfigError(
                f"config has {name}={getattr(config, name)}, the problem has {name}={value}; "
                "they must agree"
            )
    for name in ("m", "n", "k"):
        if getattr(problem, name) > MAX_SIZE:
            raise ConfigError(f"{name}={getattr(problem, name)} must be at most {MAX_SIZE}")
    for operand, field in (("a", "a_copy_bytes"), ("b", "b_copy_bytes"), ("d", "d_store_bytes")):
        used, widest = getattr(config, field), widest_access(problem, operand)
        if problem.extent_bytes(operand) and used > widest:
            raise ConfigError(
                f"{field}={used} needs every row of {operand.upper()} to start at a multiple of "
                f"{used} bytes, got an alignment of {getattr(problem, f'{operand}_alignment')} and "
                f"a row stride of {problem.stride(operand)} elements; try {field}={widest}"
            )


def _version(config: Config) -> str:
    """The lowest `.version` that knows the target and, for FP8, the instruction."""
    needed = [arch(config.target).min_ptx_version]
    if config.a in FP8:
        needed.append(FP8_VERSION)
    return max(needed, key=lambda v: tuple(map(int, v.split("."))))


def _copy_part(tile: WarpTile) -> str:
    return "copy_mma_async" if tile.copy_bytes in ASYNC_COPY_BYTES else "copy_mma_elements"


def _fragments_part(tile: WarpTile) -> str:
    if tile.k_major:
        return "fragments_mma_rows"
    return "fragments_mma_bytes" if tile.transposed_bytes else "fragments_mma_transposed"


def _smem_map(config: Config) -> tuple[SmemRegion, ...]:
    a, b = config.a_tile, config.b_tile
    regions = []
    for stage in range(config.stages):
        offset = stage * config.stage_bytes
        regions.append(SmemRegion(f"a[{stage}]", offset, a.nbytes, "A tile"))
        regions.append(SmemRegion(f"b[{stage}]", offset + a.nbytes, b.nbytes, "B tile"))
    return tuple(regions)


def _launch(problem: Gemm, config: Config) -> Launch:
    num_m_tiles = -(-problem.m // config.tile_m)
    num_n_tiles = -(-problem.n // config.tile_n)
    params = []
    for operand in ("a", "b", "d"):
        stride_bytes = problem.stride(operand) * dtype(getattr(problem, operand)).bytes
        if getattr(problem, f"{operand}_shape")[0] <= 1:
            stride_bytes = 0  # a single row has none that its copies must be aligned to
        params.append(Param(f"{operand}_pointer", "pointer", operand))
        params.append(Param(f"{operand}_stride_bytes", "u64", stride_bytes))
    buffers = [
        Buffer("a", problem.extent_bytes("a"), "in", f"random:{problem.a}:0"),
        Buffer("b", problem.extent_bytes("b"), "in", f"random:{problem.b}:1"),
        Buffer("d", problem.extent_bytes("d"), "out"),
    ]
    if config.scale != "none":
        params.append(Param("scale_a", "pointer", "scale_a"))
        params.append(Param("scale_b", "pointer", "scale_b"))
        buffers.append(Buffer("scale_a", 4 * problem.scale_a_length, "in", "random:f32:2"))
        buffers.append(Buffer("scale_b", 4 * problem.scale_b_length, "in", "random:f32:3"))
    params += [
        Param("m", "u32", problem.m),
        Param("n", "u32", problem.n),
        Param("k", "u32", problem.k),
        Param("num_k_tiles", "u32", -(-problem.k // config.tile_k)),
        Param("num_m_tiles", "u32", num_m_tiles),
        Param("num_n_tiles", "u32", num_n_tiles),
        Param("num_tiles", "u32", num_m_tiles * num_n_tiles),
        Param("raster_m_tiles", "u32", RASTER_M_TILES),
        Param("alpha", "f32", problem.alpha),
    ]
    return Launch(
        entry=str(config),
        grid_ctas=(max(1, num_m_tiles * num_n_tiles), 1, 1),
        cta_threads=(config.threads, 1, 1),
        dynamic_smem_bytes=config.smem_bytes,
        params=tuple(params),
        buffers=tuple(buffers),
    )


def _fields(config: Config) -> dict[str, object]:
    a, b = config.a_tile, config.b_tile
    d = dtype(config.d)
    mma_k = STEP_BYTES // a.dtype.bytes
    return {
        "config": config,
        "a": a,
        "b": b,
        "a_offset": 0,
        "b_offset": a.nbytes,
        "cta_threads": config.threads,
        "stage_bytes": config.stage_bytes,
        "ring_bytes": config.smem_bytes,
        "stages_ahead": config.stages - 1,
        "pending_groups": config.stages - 2,
        "param_types": {
            name: "f32" if name == "alpha" else "u64" if name in _WIDE_PARAMS else "u32"
            for name in ("m", "n", "k", *_TILE_PARAMS, "alpha", *_WIDE_PARAMS)
        },
        "warp_m_mask": config.warps_m - 1,
        "warp_n_shift": config.warps_m.bit_length() - 1,
        "warps": [
            {
                "index": i,
                "rows": _range(i % config.warps_m, a.warp_rows),
                "columns": _range(i // config.warps_m, b.warp_rows),
            }
            for i in range(config.warps_m * config.warps_n)
        ],
        "mma": f"m16n8k{mma_k}.row.col.f32.{config.a}.{config.b}.f32",
        "num_registers": config.num_registers,
        "register_indices": list(range(config.num_registers)),
        "promotion_tiles": PROMOTION_K // config.tile_k,
        "fragments": [
            {"prefix": fragment_prefix(t.name, half), "count": BLOCK_REGISTERS * t.num_blocks}
            for t in (a, b)
            for half in range(2)
        ],
        "first_step": step(a, b, -1),
        "steps": [step(a, b, index) for index in range(a.num_steps)],
        "lanes": lane_map(a, b),
        "blocks": [
            {"row": block.row, "groups": _groups(block, config)} for block in d_blocks(a, b)
        ],
        "d_bytes": d.bytes,
        "packed": d.bytes == 2,
        "store_type": "b16" if d.bytes == 2 else "b32",
        "pack": {"bf16": "cvt.rn.bf16x2.f32", "f16": "cvt.rn.f16x2.f32", "f32": ""}[config.d],
        "convert": {"bf16": "cvt.rn.bf16.f32", "f16": "cvt.rn.f16.f32", "f32": "mov.b32"}[config.d],
    }


_TILE_PARAMS = ("num_k_tiles", "num_m_tiles", "num_n_tiles", "num_tiles", "raster_m_tiles")
_WIDE_PARAMS = (
    "a_pointer", "a_stride_bytes", "b_pointer", "b_stride_bytes", "d_pointer", "d_stride_bytes",
    "scale_a", "scale_b",
)  # fmt: skip


def _range(index: int, length: int) -> str:
    return f"{index * length}..{(index + 1) * length - 1}"


def _groups(block: DBlock, config: Config) -> list[dict[str, object]]:
    """Pairs of columns of one block of 16 rows: a lane's four values, and where they belong."""
    d_bytes = dtype(config.d).bytes
    result = "%sum" if config.accumulate == "promoted" else "%acc"
    rows = (("%row_inside", "%row_pointer"), ("%second_row_inside", "%second_row_pointer"))
    columns = ("%first_inside", "%second_inside")
    groups: list[dict[str, object]] = []
    for pair in block.pairs:
        values = [f"{result}{i}" for i in pair.values]
        groups.append(
            {
                "column": pair.column,
                "offset": pair.column * d_bytes,
                "held": values,
                "rows": [
                    {
                        "inside": inside,
                        "pointer": pointer,
                        "first": values[2 * r],
                        "second": values[2 * r + 1],
                    }
                    for r, (inside, pointer) in enumerate(rows)
                ],
                "placed": [
                    {
                        "register": values[2 * r + c],
                        "row_inside": inside,
                        "column_inside": columns[c],
                        "pointer": pointer,
                        "offset": (pair.column + c) * d_bytes,
                    }
                    for r, (inside, pointer) in enumerate(rows)
                    for c in range(2)
                ],
            }
        )
    return groups

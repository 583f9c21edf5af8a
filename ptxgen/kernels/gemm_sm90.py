"""gemm_sm90: dense GEMM on Hopper's wgmma, with TMA and a ring of mbarriers.

Pairs with templates/gemm_sm90.ptx.j2. One producer warp fills a ring of stages by TMA; one or two
consumer warpgroups run wgmma on them and store D. CTAs are persistent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ptxgen.arch import arch
from ptxgen.dtypes import Dtype, dtype
from ptxgen.errors import ConfigError
from ptxgen.launch import Buffer, Launch, Param, TensorMap
from ptxgen.layout import (
    CHUNK_BYTES,
    MMA_K_BYTES,
    MMA_M,
    TILE_ALIGNMENT,
    DStaging,
    OperandTile,
    SmemRegion,
    align_up,
)
from ptxgen.plans import Barrier, Plan
from ptxgen.problem import BLOCK_SCALES, FP8, PROMOTION_K, SCALE_BLOCK, Gemm

NAME = "gemm_sm90"
UNIT = "wgmma"
"""The tensor core's instruction, as ptxgen.verification models it."""
TARGET = "sm_90a"
TARGETS = (TARGET,)
VERSION = "8.0"
WARPGROUP_THREADS = 128
MOVER_LANES = 32
"""Lanes of the warp that copies block scales; each arrives at the full barrier."""
SWIZZLES = (0, 32, 64, 128)
NUM_SMS = 132
"""Persistent CTAs when no device is given: the SMs of an H100 or H200."""
PRODUCER_REGISTERS = 24
MOVER_REGISTERS = 40
"""Registers per thread of the producer warpgroup when one of its warps moves scales."""
CONSUMER_REGISTERS = {1: 255, 2: 240}
"""Registers per consumer thread, by warpgroups. Two: 3 x 168 at entry = 24 + 240 + 240. One: the
entry count already suffices, so setmaxnreg is left out."""
OVERHEAD_REGISTERS = {1: 88, 2: 72}
"""Registers for everything but accumulators, by warpgroups. Measured: ptxas 13.0 and 13.5 assemble
every configuration within this bound without a spill (tests/test_gemm_sm90_assembles.py)."""
SPARED_REGISTERS = 24
"""Registers by which the overhead is smaller where accumulators die before the epilogue starts."""
MAX_STAGES = 32
STORES = ("tma", "deferred", "global")
RASTER_M_TILES = 8
"""Tiles along M that run side by side, so that their B tiles are read from L2."""


@dataclass(frozen=True)
class Config:
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
    """Consumer warpgroups; each owns tile_m / warpgroups rows."""
    swizzle_bytes: int = 128
    """Swizzle of A and B tiles: 0 (none), 32, 64 or 128."""
    store: str = "tma"
    """How D is stored: tma; deferred (tma, during the next tile's main loop); or global
    (st.global) for addresses, strides or row lengths that TMA refuses."""

    def __str__(self) -> str:
        return "_".join(
            (
                NAME, self.a, self.b, self.d, self.layout, self.scale, self.accumulate,
                f"{self.tile_m}x{self.tile_n}x{self.tile_k}", f"s{self.stages}",
                f"c{self.cluster_m}x{self.cluster_n}", f"w{self.warpgroups}",
                f"swizzle{self.swizzle_bytes}", self.store,
            )
        )  # fmt: skip

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def blocks_per_warpgroup(self) -> int:
        """Blocks of 64 rows that one consumer warpgroup owns."""
        return self.tile_m // (MMA_M * self.warpgroups)

    @property
    def registers_per_block(self) -> int:
        """Accumulator registers of one block of 64 rows."""
        return self.tile_n // 2

    @property
    def promotion_tiles(self) -> int:
        """k-tiles between two promotions; 0 if not promoted."""
        return PROMOTION_K // self.tile_k if self.accumulate == "promoted" else 0

    @property
    def overlaps_promotion(self) -> bool:
        """Whether two accumulator sets take turns: k-tiles as long as a promotion, and a ring.

        An odd number of blocks only: with two, ptxas 13.0 and 13.5 serialise the wgmma (C7514).
        """
        return self.promotion_tiles == 1 and self.stages > 1 and self.blocks_per_warpgroup % 2 == 1

    @property
    def num_accumulators(self) -> int:
        """Accumulator sets of 64 rows."""
        return 2 if self.overlaps_promotion else self.blocks_per_warpgroup

    @property
    def block_scaled(self) -> bool:
        """Whether scales belong to blocks of K, and come with each k-tile."""
        return self.scale in BLOCK_SCALES

    @property
    def columns_per_scale(self) -> int:
        """Columns of the tile that share one entry of scale_b in a stage."""
        if self.scale == "group":
            return 1
        return self.tile_n if SCALE_BLOCK % self.tile_n == 0 else 8

    @property
    def scales_bytes(self) -> int:
        """Shared memory of one stage's scales."""
        if not self.block_scaled:
            return 0
        return align_up(4 * (self.tile_m + self.tile_n // self.columns_per_scale), 16)

    @property
    def a_tile(self) -> OperandTile:
        """A's tile in shared memory."""
        return OperandTile(
            dtype(self.a), self.layout[0] == "n", self.swizzle_bytes, self.tile_m, self.tile_k,
            self.cluster_n,
        )  # fmt: skip

    @property
    def b_tile(self) -> OperandTile:
        """B's tile in shared memory."""
        return OperandTile(
            dtype(self.b), self.layout[1] == "t", self.swizzle_bytes, self.tile_n, self.tile_k,
            self.cluster_m,
        )  # fmt: skip

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage."""
        return align_up(self.a_tile.nbytes, TILE_ALIGNMENT) + align_up(
            self.b_tile.nbytes, TILE_ALIGNMENT
        )

    @property
    def staging_bytes(self) -> int:
        """Shared memory through which D is stored."""
        if self.store == "global":
            return 0
        return self.warpgroups * DStaging.NUM_BUFFERS * DStaging.BUFFER_BYTES

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of one CTA."""
        per_stage = self.stage_bytes + self.scales_bytes + 2 * 8
        return self.stages * per_stage + self.staging_bytes

    def check(self) -> None:
        """Refuse what cannot work, whatever the problem.

        Raises: ConfigError with rule, value, limit and what to try.
        """
        for name, allowed in (
            ("tile_m", (64, 128, 192, 256)),
            ("tile_n", range(8, 257, 8)),
            ("stages", range(1, MAX_STAGES + 1)),
            ("cluster_m", (1, 2)),
            ("cluster_n", (1, 2)),
            ("warpgroups", (1, 2)),
            ("swizzle_bytes", SWIZZLES),
            ("store", STORES),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or value not in allowed:
                shown = (
                    f"a multiple of {allowed.step} from {allowed.start} to {allowed[-1]}"
                    if isinstance(allowed, range)
                    else f"one of {', '.join(map(str, allowed))}"
                )
                raise ConfigError(f"{name}={value!r} must be {shown}")
        if self.cluster_ctas > 2:
            raise ConfigError(
                f"cluster {self.cluster_m}x{self.cluster_n} must have at most 2 CTAs; try 2x1"
            )
        if self.tile_m % (MMA_M * self.warpgroups):
            raise ConfigError(
                f"tile_m={self.tile_m} must be a multiple of 64 rows per warpgroup, so of "
                f"{MMA_M * self.warpgroups} with warpgroups={self.warpgroups}; try warpgroups=1"
            )
        self._check_tile_k()
        for name, tile in (("tile_m", self.a_tile), ("tile_n", self.b_tile)):
            if tile.slices > 1 and tile.box[1] * tile.slices % (8 * tile.slices):
                raise ConfigError(
                    f"{name}={tile.rows} must be a multiple of {8 * tile.slices}, since the "
                    f"{tile.slices} CTAs of the cluster each load a part of whole 8-row groups; "
                    f"try {name}={align_up(tile.rows, 8 * tile.slices)}"
                )
        if self.store == "deferred" and (
            dtype(self.d).bytes != 2 or self.stages < 2 or self.accumulate != "fast"
        ):
            raise ConfigError(
                f"store=deferred holds a rounded tile in registers during the next main loop: it "
                f"needs a 16-bit d, stages>=2 and accumulate=fast, got d={self.d}, stages={self.stages}, "
                f"accumulate={self.accumulate}; try store=tma"
            )
        if self.block_scaled and (self.accumulate != "promoted" or self.tile_k != SCALE_BLOCK):
            raise ConfigError(
                f"scale={self.scale} multiplies 128-K partial sums, so it needs "
                f"accumulate=promoted and tile_k=128, got accumulate={self.accumulate} and "
                f"tile_k={self.tile_k}; try an FP8 type with swizzle=128"
            )
        self._check_registers()
        limit = arch(TARGET).smem_bytes
        if self.smem_bytes > limit:
            per_stage = self.stage_bytes + self.scales_bytes + 2 * 8
            fit = (limit - self.staging_bytes) // per_stage
            hint = f"try stages<={fit}" if fit > 0 else "try a smaller tile"
            raise ConfigError(
                f"stages={self.stages} of tile {self.tile_m}x{self.tile_n}x{self.tile_k} needs "
                f"{self.smem_bytes} B of shared memory, {TARGET} has {limit} B; {hint}"
            )

    def _check_tile_k(self) -> None:
        element_bytes = dtype(self.a).bytes
        widths = (self.swizzle_bytes,) if self.swizzle_bytes else (32, 64, 128)
        allowed = [w // element_bytes for w in widths]
        if self.tile_k not in allowed:
            raise ConfigError(
                f"tile_k={self.tile_k} of {self.a} must be {' or '.join(map(str, allowed))} "
                f"(one swizzle row of {' or '.join(map(str, widths))} bytes) with "
                f"swizzle={self.swizzle_bytes or 'none'}; try tile_k={allowed[-1]}"
            )

    def _check_registers(self) -> None:
        sets: float = self.num_accumulators
        if self.store == "deferred":
            sets += self.blocks_per_warpgroup / 2
        if self.accumulate == "promoted":
            sets += self.blocks_per_warpgroup
        needed = int(sets * self.registers_per_block) + OVERHEAD_REGISTERS[self.warpgroups]
        if self.store == "deferred" or self.overlaps_promotion:
            needed -= SPARED_REGISTERS
        limit = CONSUMER_REGISTERS[self.warpgroups]
        if needed > limit:
            raise ConfigError(
                f"tile {self.tile_m}x{self.tile_n} with {self.warpgroups} warpgroup(s) and "
                f"accumulate={self.accumulate} needs about {needed} registers per thread, a "
                f"consumer has {limit}; try a smaller tile_n"
                + ("" if self.warpgroups == 2 else " or warpgroups=2")
            )


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


def _check_operands(problem: Gemm) -> None:
    """Refuse the formats and layouts that wgmma does not have.

    Raises: ConfigError.
    """
    if problem.a not in ("bf16", "f16", *FP8) or problem.b not in ("bf16", "f16", *FP8):
        raise ConfigError(
            f"wgmma of {NAME} multiplies bf16, f16, e4m3 and e5m2, got a={problem.a} and "
            f"b={problem.b}; try arch=sm_100a"
        )
    if problem.a in FP8 and problem.layout != "nt":
        raise ConfigError(
            f"layout={problem.layout} with {problem.a} x {problem.b}: FP8 operands must be K-major, "
            "since wgmma transposes only 16-bit types; try layout=nt with A stored [M,K] and "
            "B stored [N,K]"
        )


def d_fits_tma(problem: Gemm) -> bool:
    """Whether TMA can store D: base, row stride and row length are multiples of 16 bytes.

    The row length, because a TMA store clips at whole 16 bytes: with N = 63 bf16 it wrote two bytes
    of the gap behind each row. Measured on an H200 (tests/test_gemm_sm90.py has the case).
    """
    element_bytes = dtype(problem.d).bytes
    in_bytes = (problem.stride("d") * element_bytes, problem.n * element_bytes)
    return problem.d_alignment % 16 == 0 and not any(x % 16 for x in in_bytes)


def default_config(problem: Gemm, **chosen: int | str) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    _check_operands(problem)
    element_bytes = dtype(problem.a).bytes
    values: dict[str, int | str] = dict(static_fields(problem))
    values["store"] = "tma" if d_fits_tma(problem) else "global"
    values.update(chosen)
    swizzle = int(values.setdefault("swizzle_bytes", 128))
    values.setdefault("tile_k", (swizzle or 128) // element_bytes)
    if "tile_m" not in values:
        values["tile_m"] = 64 if problem.m <= 64 or values.get("warpgroups") == 1 else 128
    if "warpgroups" not in values:
        values["warpgroups"] = 1 if int(values["tile_m"]) % 128 else 2
    rows = int(values["tile_m"])
    if "tile_n" not in values:
        widest = 128 if problem.accumulate == "promoted" or rows * 256 > 128 * 256 else 256
        values["tile_n"] = max(8, min(widest, align_up(problem.n, 16)))
    auto_cluster = not {"cluster_m", "cluster_n"} & set(chosen)
    if auto_cluster and problem.m > rows and int(values["tile_n"]) % 16 == 0:
        values["cluster_m"] = 2
    config = Config(**values)  # type: ignore[arg-type]
    if "stages" not in chosen:
        spare = arch(TARGET).smem_bytes - config.staging_bytes
        config = replace(
            config,
            stages=max(1, min(8, spare // (config.stage_bytes + config.scales_bytes + 2 * 8))),
        )
    config.check()
    return config


def configs(problem: Gemm) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    base = default_config(problem)
    for tile_m in (64, 128, 192, 256):
        for tile_n in range(8, 257, 8):
            for warpgroups in (1, 2):
                for cluster_m, cluster_n in ((1, 1), (2, 1), (1, 2)):
                    for swizzle_bytes in SWIZZLES:
                        tile_k = (swizzle_bytes or 128) // dtype(problem.a).bytes
                        config = replace(
                            base, tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, stages=1,
                            warpgroups=warpgroups, cluster_m=cluster_m, cluster_n=cluster_n,
                            swizzle_bytes=swizzle_bytes,
                        )  # fmt: skip
                        spare = arch(TARGET).smem_bytes - config.staging_bytes
                        fit = max(
                            1, min(8, spare // (config.stage_bytes + config.scales_bytes + 2 * 8))
                        )
                        config = replace(config, stages=fit)
                        try:
                            config.check()
                        except ConfigError as error:
                            yield config, str(error)
                        else:
                            yield config, None


def plan(problem: Gemm, config: Config | None = None, num_sms: int = NUM_SMS) -> Plan:
    """Everything that the template prints and a device needs.

    num_sms: how many persistent CTAs may run at once (SMs of the device).

    Raises: ConfigError if the config is illegal or does not serve the problem.
    """
    config = config or default_config(problem)
    config.check()
    _check_serves(problem, config)
    launch = _launch(problem, config, num_sms)
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=TARGET,
        version=VERSION,
        launch=launch,
        smem_map=_smem_map(config),
        barriers=_barriers(config),
        parts={
            "scheduler": "scheduler_static",
            "producer": "producer_tma",
            "mainloop": (
                "mainloop_overlapped" if config.overlaps_promotion
                else "mainloop_promoted" if config.accumulate == "promoted"
                else "mainloop_pipelined" if config.stages > 1
                else "mainloop_drained"
            ),
            "promotion": (
                "promotion_group" if config.scale == "group"
                else "promotion_plain" if config.scale != "block"
                else "promotion_block" if config.columns_per_scale == config.tile_n
                else "promotion_blocks"
            ),
            "mover": "mover_scales",
            "scale": "scale_none" if config.block_scaled else f"scale_{config.scale}",
            "epilogue": "epilogue_global" if config.store == "global" else "epilogue_tma",
        },
        fields=_fields(config),
    )  # fmt: skip


def check_operands(problem: Gemm) -> None:
    """Refuse operands that wgmma or TMA cannot take, whatever the config.

    Raises: ConfigError.
    """
    _check_operands(problem)
    for name in ("a", "b"):
        stride_bytes = problem.stride(name) * dtype(getattr(problem, name)).bytes
        alignment = getattr(problem, f"{name}_alignment")
        if not problem.k or not problem.extent_bytes(name):
            continue
        if alignment % 16:
            raise ConfigError(
                f"{name.upper()} starts at an address that is a multiple of {alignment} bytes "
                f"only; TMA needs a multiple of 16; try a copy of {name.upper()}"
            )
        if stride_bytes % 16:
            step = 16 // dtype(getattr(problem, name)).bytes
            raise ConfigError(
                f"{name.upper()} has a row stride of {problem.stride(name)} elements = "
                f"{stride_bytes} bytes; TMA needs a multiple of 16 bytes; try a padded copy with a "
                f"row stride of {align_up(problem.stride(name), step)} elements"
            )
        if stride_bytes >= 1 << 40:
            raise ConfigError(
                f"{name.upper()} has a row stride of {stride_bytes} bytes; TMA needs less than 2^40"
            )


def _check_serves(problem: Gemm, config: Config) -> None:
    check_operands(problem)
    for name, value in static_fields(problem).items():
        if getattr(config, name) != value:
            raise ConfigError(
                f"config has {name}={getattr(config, name)}, the problem has {name}={value}; "
                "they must agree"
            )
    if config.store != "global" and problem.m and problem.n and not d_fits_tma(problem):
        raise ConfigError(
            f"store={config.store} needs D at a multiple of 16 bytes, with a row stride and a row length of "
            f"multiples of 16 bytes (a TMA store clips at whole 16 bytes), got an alignment of "
            f"{problem.d_alignment}, a stride of {problem.stride('d') * dtype(problem.d).bytes} and "
            f"a row of {problem.n * dtype(problem.d).bytes} bytes; try store=global"
        )


def _smem_map(config: Config) -> tuple[SmemRegion, ...]:
    a_bytes = align_up(config.a_tile.nbytes, TILE_ALIGNMENT)
    regions = []
    for stage in range(config.stages):
        offset = stage * config.stage_bytes
        regions.append(SmemRegion(f"a[{stage}]", offset, config.a_tile.nbytes, "A tile"))
        regions.append(SmemRegion(f"b[{stage}]", offset + a_bytes, config.b_tile.nbytes, "B tile"))
    offset = config.stages * config.stage_bytes
    if config.staging_bytes:
        regions.append(
            SmemRegion("d", offset, config.staging_bytes,
                       f"D staging, {DStaging.NUM_BUFFERS} buffers per consumer warpgroup")
        )  # fmt: skip
        offset += config.staging_bytes
    if config.block_scaled:
        nbytes = config.scales_bytes * config.stages
        regions.append(SmemRegion("scales", offset, nbytes, "block scales, A then B, per stage"))
        offset += nbytes
    regions.append(SmemRegion("full", offset, 8 * config.stages, "mbarriers: stage filled"))
    offset += 8 * config.stages
    regions.append(SmemRegion("empty", offset, 8 * config.stages, "mbarriers: stage read"))
    return tuple(regions)


def _barriers(config: Config) -> tuple[Barrier, ...]:
    ctas = " of every CTA of the cluster" if config.cluster_ctas > 1 else ""
    return (
        Barrier(
            "full", config.stages, 1 + (MOVER_LANES if config.block_scaled else 0),
            config.a_tile.nbytes + config.b_tile.nbytes,
            "the producer, by arrive.expect_tx; TMA counts the bytes down"
            + ("; the mover's 32 lanes, when their copies land" if config.block_scaled else ""),
            "all consumer threads",
        ),
        Barrier(
            "empty", config.stages, 4 * config.warpgroups * config.cluster_ctas, 0,
            f"one lane of every consumer warp{ctas}",
            "the producer and the mover" if config.block_scaled else "the producer",
        ),
    )  # fmt: skip


def _tensor_map(problem: Gemm, operand: str, box: tuple[int, int], swizzle: str) -> TensorMap:
    rows, columns = getattr(problem, f"{operand}_shape")
    kind: Dtype = dtype(getattr(problem, operand))
    if not rows or not columns:
        return TensorMap(None)
    return TensorMap(
        buffer=operand,
        element_type=kind.tensor_map_type,
        dims=(columns, rows),
        strides_bytes=(problem.stride(operand) * kind.bytes,),
        box=box,
        swizzle=swizzle,
        l2_promotion="none" if operand == "d" else "256B",
    )


def _launch(problem: Gemm, config: Config, num_sms: int) -> Launch:
    num_m_tiles = -(-problem.m // (config.tile_m * config.cluster_m))
    num_n_tiles = -(-problem.n // (config.tile_n * config.cluster_n))
    num_tiles = num_m_tiles * num_n_tiles
    clusters = max(1, min(num_tiles, num_sms // config.cluster_ctas))
    swizzle = f"{config.swizzle_bytes}B" if config.swizzle_bytes else "none"
    staging = DStaging(dtype(config.d), config.tile_n)
    params = [
        Param("a_map", "tensor_map", _tensor_map(problem, "a", config.a_tile.box, swizzle)),
        Param("b_map", "tensor_map", _tensor_map(problem, "b", config.b_tile.box, swizzle)),
    ]
    if config.store != "global":
        params.append(
            Param("d_map", "tensor_map", _tensor_map(problem, "d", staging.box, staging.swizzle))
        )
    else:
        params.append(Param("d_pointer", "pointer", "d"))
        params.append(Param("d_stride_bytes", "u64", problem.stride("d") * dtype(problem.d).bytes))
    if config.scale != "none":
        for name in ("scale_a", "scale_b"):
            params.append(Param(name, "pointer", name))
            if config.block_scaled:
                row, k = getattr(problem, f"{name}_strides")
                params.append(Param(f"{name}_row_bytes", "u32", 4 * row))
                params.append(Param(f"{name}_k_bytes", "u32", 4 * k))
    params += [
        Param("m", "u32", problem.m),
        Param("n", "u32", problem.n),
        Param("num_k_tiles", "u32", -(-problem.k // config.tile_k)),
        Param("num_m_tiles", "u32", num_m_tiles),
        Param("num_n_tiles", "u32", num_n_tiles),
        Param("num_tiles", "u32", num_tiles),
        Param("raster_m_tiles", "u32", max(1, RASTER_M_TILES // config.cluster_m)),
        Param("alpha", "f32", problem.alpha),
    ]
    buffers = [
        Buffer("a", problem.extent_bytes("a"), "in", f"random:{problem.a}:0"),
        Buffer("b", problem.extent_bytes("b"), "in", f"random:{problem.b}:1"),
        Buffer("d", problem.extent_bytes("d"), "out"),
    ]
    if config.scale != "none":
        buffers.append(Buffer("scale_a", 4 * problem.scale_a_length, "in", "random:f32:2"))
        buffers.append(Buffer("scale_b", 4 * problem.scale_b_length, "in", "random:f32:3"))
    return Launch(
        entry=str(config),
        grid_ctas=(clusters * config.cluster_ctas, 1, 1),
        cta_threads=(WARPGROUP_THREADS * (1 + config.warpgroups), 1, 1),
        cluster_ctas=(config.cluster_ctas, 1, 1),
        dynamic_smem_bytes=config.smem_bytes,
        params=tuple(params),
        buffers=tuple(buffers),
    )


def _fields(config: Config) -> dict[str, object]:
    a_tile, b_tile = config.a_tile, config.b_tile
    regions = {r.name: r.offset for r in _smem_map(config)}
    d = dtype(config.d)
    promoted = config.accumulate == "promoted"
    blocks = range(config.blocks_per_warpgroup)
    results = [f"%sum{i}_" if promoted else f"%acc{i}_" for i in blocks]
    chunks = _chunks(config, results)
    deferred = config.store == "deferred"
    return {
        "config": config,
        "a": a_tile,
        "b": b_tile,
        "cta_threads": WARPGROUP_THREADS * (1 + config.warpgroups),
        "cluster_ctas": config.cluster_ctas,
        "cluster_mask": (1 << config.cluster_ctas) - 1,
        "clustered": config.cluster_ctas > 1,
        "producer_registers": MOVER_REGISTERS if config.block_scaled else PRODUCER_REGISTERS,
        "consumer_registers": CONSUMER_REGISTERS[config.warpgroups] - 8 * config.block_scaled,
        "moves_registers": config.warpgroups > 1,
        "empty_arrivals": 4 * config.warpgroups * config.cluster_ctas,
        "stages": config.stages,
        "stage_bytes": config.stage_bytes,
        "stage_units": config.stage_bytes >> 4,
        "b_offset": regions["b[0]"],
        "full_offset": regions["full"],
        "empty_offset": regions["empty"],
        "empty_from_full": regions["empty"] - regions["full"],
        "d_offset": regions.get("d", 0),
        "tx_bytes": a_tile.nbytes + b_tile.nbytes,
        "warpgroup_rows": config.tile_m // config.warpgroups,
        "warpgroup_a_bytes": config.blocks_per_warpgroup * a_tile.mma_m_bytes,
        "a_descriptor": hex(a_tile.descriptor.encode()),
        "b_descriptor": hex(b_tile.descriptor.encode()),
        "mma": f"m64n{config.tile_n}k{a_tile.mma_k}.f32.{config.a}.{config.b}",
        "mma_flags": _mma_flags(config),
        "full_arrivals": 1 + (MOVER_LANES if config.block_scaled else 0),
        "moves_scales": config.block_scaled,
        **_promotion_fields(config, regions),
        "k_steps": [
            {
                "index": step,
                "a_units": [(step * a_tile.k_step_bytes + i * a_tile.mma_m_bytes) >> 4 for i in blocks],
                "b_units": step * b_tile.k_step_bytes >> 4,
                "accumulate": "1" if step else "%accumulate",
                "fresh": int(step > 0),
            }
            for step in range(config.tile_k // a_tile.mma_k)
        ],
        "block_registers": config.registers_per_block,
        "blocks": [
            {
                "index": i,
                "rows": i * MMA_M,
                "accumulator": f"%acc{i if config.num_accumulators > 1 else 0}_",
                "result": result,
                "scale_offset": 4 * MMA_M * i,
                "second_scale_offset": 4 * (MMA_M * i + 8),
                "groups": [_group(result, f"%held{i}_", g) for g in range(config.tile_n // 8)],
            }
            for i, result in zip(blocks, results, strict=True)
        ],
        "register_indices": list(range(config.registers_per_block)),
        "defers_store": deferred,
        "chunks_in_mainloop": chunks if deferred else [],
        "chunks_after_tile": [] if deferred else chunks,
        "chunks_after_kernel": chunks if deferred else [],
        "held": [f"%held{i}_" for i in blocks] if d.bytes == 2 else [],
        "held_registers": config.registers_per_block // 2,
        "consumers": [
            {
                "index": i,
                "warps": f"{4 * i + 4}..{4 * i + 7}  ",
                "rows": f"{i * config.tile_m // config.warpgroups}"
                f"..{(i + 1) * config.tile_m // config.warpgroups - 1}",
            }
            for i in range(config.warpgroups)
        ],
        "stage_barriers": [{"offset": 8 * i} for i in range(config.stages)],
        "rank_moves": {
            axis: f"mov.u32 %cluster_{axis}_rank, {'%cluster_rank' if many else '0'}"
            for axis, many in (("m", config.cluster_m > 1), ("n", config.cluster_n > 1))
        },
        "accumulators": [f"%acc{i}_" for i in range(config.num_accumulators)],
        "sums": [f"%sum{i}_" for i in blocks] if promoted else [],
        "promotion_tiles": config.promotion_tiles,
        "d_bytes": d.bytes,
        "packed": d.bytes == 2,
        "store_type": "b16" if d.bytes == 2 else "b32",
        "pack": {"bf16": "cvt.rn.bf16x2.f32", "f16": "cvt.rn.f16x2.f32", "f32": ""}[config.d],
        "convert": {"bf16": "cvt.rn.bf16.f32", "f16": "cvt.rn.f16.f32", "f32": "mov.b32"}[config.d],
        "staging": DStaging(d, config.tile_n),
        "staging_bytes": DStaging.NUM_BUFFERS * DStaging.BUFFER_BYTES,
        "staging_buffer_bytes": DStaging.BUFFER_BYTES,
    }  # fmt: skip


def _promotion_fields(config: Config, regions: dict[str, int]) -> dict[str, object]:
    """What the main loops with promotion print: batches, and where the scales lie in a stage."""
    blocks = config.blocks_per_warpgroup
    k_tiles = 2 if blocks % 2 else 1
    early = config.scale != "group" and config.columns_per_scale != 8
    batches = [
        {
            "index": i,
            "block": {
                "index": i % blocks,
                "result": f"%sum{i % blocks}_",
                "scale_offset": 4 * MMA_M * (i % blocks),
                "second_scale_offset": 4 * (MMA_M * (i % blocks) + 8),
            },
            "accumulator": f"%acc{i % 2}_",
            "starts_k_tile": i % blocks == 0,
            "releases_early": early and i % blocks == blocks - 1,
            "releases_late": not early and i % blocks == blocks - 1,
        }
        for i in range(k_tiles * blocks)
    ]
    turns = []
    for i in [*range(1, len(batches)), 0]:
        whose = "previous" if batches[i]["starts_k_tile"] else "current"
        turns.append(
            {
                "issued": batches[i],
                "retired": batches[i - 1],
                "empty_bar": f"%{whose}_empty_bar",
                "scales": f"%{whose}_scales",
            }
        )
    entries_b = config.tile_n // config.columns_per_scale if config.block_scaled else 0
    offset_b = 4 * config.tile_m
    return {
        "first_batch": batches[0],
        "batch_turns": turns,
        "last_batches": [b for b in batches if b["releases_early"] or b["releases_late"]],
        "scales_bytes": config.scales_bytes,
        "scales_offset": regions.get("scales", 0),
        "scale_a_rounds": _rounds("a", config.tile_m, 0),
        "scale_b_rounds": _rounds("b", entries_b, offset_b),
        "num_a_rounds": -(-config.tile_m // MOVER_LANES),
        "num_b_rounds": max(1, -(-entries_b // MOVER_LANES)),
        "scale_a": {
            "columns_per_entry": 1, "start": "%m_start", "extent": "%m", "shift": 0,
            "row_bytes": "%a_row_bytes", "matrix": "%scale_a", "k_bytes": "%a_k_bytes", "entries": config.tile_m,
            "offset": 0,
        },
        "scale_b": {
            "columns_per_entry": config.columns_per_scale, "start": "%n_start", "extent": "%n",
            "shift": 0 if config.scale == "group" else SCALE_BLOCK.bit_length() - 1,
            "row_bytes": "%b_row_bytes", "matrix": "%scale_b", "k_bytes": "%b_k_bytes", "entries": entries_b,
            "offset": offset_b,
        },
        "row_factors": [f"%promote_{8 * (i // 2 % 2)}" for i in range(config.registers_per_block)],
        "row_products": [f"%factor_{8 * (i // 2 % 2)}" for i in range(config.registers_per_block)],
        "column_quads": [
            {
                "offset": offset_b + 4 * first,
                "groups": [
                    list(range(4 * g, 4 * g + 4))
                    for g in range(first, min(first + 4, config.tile_n // 8))
                ],
            }
            for first in range(0, config.tile_n // 8, 4)
        ],
        "column_groups": [
            {"offset": offset_b + 32 * g, "registers": list(range(4 * g, 4 * g + 4))}
            for g in range(config.tile_n // 8)
        ],
    }  # fmt: skip


def _rounds(operand: str, entries: int, offset: int) -> list[dict[str, object]]:
    """One copy of the mover per 32 entries of a stage's scales: its registers and its place."""
    return [
        {
            "first": first,
            "offset": offset + 4 * first,
            "pointer": f"%{operand}_pointer{i}",
            "nbytes": f"%{operand}_bytes{i}",
            "used": f"%{operand}_used{i}",
        }
        for i, first in enumerate(range(0, entries, MOVER_LANES))
    ]


def _chunks(config: Config, results: list[str]) -> list[dict[str, object]]:
    """All chunks of a warpgroup's part of D, in the order in which they are stored."""
    packed = dtype(config.d).bytes == 2
    chunks: list[dict[str, object]] = []
    for block, result in enumerate(results):
        for chunk in DStaging(dtype(config.d), config.tile_n).chunks:
            stores = []
            for store in chunk.stores:
                first = 4 * store.groups[0]
                registers = (
                    _vector(f"%held{block}_", first // 2, store.num_matrices)
                    if packed
                    else _vector(result, first, 2)
                )
                stores.append(
                    {
                        "chunk_xor": store.chunk_xor,
                        "box_offset": store.box_offset,
                        "second_offset": store.second_offset,
                        "num_matrices": store.num_matrices,
                        "registers": registers,
                        "second_registers": _vector(result, first + 2, 2),
                    }
                )
            chunks.append(
                {
                    "index": len(chunks),
                    "rows": block * MMA_M,
                    "stores": stores,
                    "boxes": chunk.boxes,
                }
            )
    return chunks


def _vector(prefix: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"{prefix}{i}" for i in range(first, first + count)) + "}"


def _group(result: str, held: str, index: int) -> dict[str, object]:
    """One group of 8 columns of a block: this lane's four values, and where each belongs."""
    values = [f"{result}{4 * index + i}" for i in range(4)]
    rows = (("%row_inside", "%row_pointer"), ("%second_row_inside", "%second_row_pointer"))
    columns = ("%column", "%second_column")
    return {
        "column": 8 * index,
        "results": values,
        "packed": [f"{held}{2 * index + i}" for i in range(2)],
        "placed": [
            {
                "register": values[2 * r + c],
                "column": columns[c],
                "row_inside": rows[r][0],
                "row_pointer": rows[r][1],
            }
            for r in range(2)
            for c in range(2)
        ],
    }


def _mma_flags(config: Config) -> str:
    """Trailing immediates of wgmma: input signs, and for 16-bit types the transpose bits."""
    signs = "1, 1"
    if dtype(config.a).bytes != 2:
        return signs
    return f"{signs}, {int(not config.a_tile.k_major)}, {int(not config.b_tile.k_major)}"


assert MMA_K_BYTES % CHUNK_BYTES == 0

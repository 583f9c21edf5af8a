"""gemm_sm100: dense GEMM on Blackwell's tcgen05, with TMA, tensor memory and rings of mbarriers.

Pairs with templates/gemm_sm100.ptx.j2. One thread loads, one issues the MMAs of a CTA or of a CTA
pair, four warps take accumulators from tensor memory to D while the next tile is multiplied.

Accumulation is that of the tensor core: each instruction adds 32 bytes of K and the accumulator as
one sum with 25 fraction bits, truncated (i8: exact). No hardware was at hand: the kernel assembles
and emulates. Source: shared/reference/ptx.md D.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from ptxgen.arch import arch
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.launch import Buffer, Launch, Param
from ptxgen.layout import MMA_K_BYTES, TILE_ALIGNMENT, DStaging, OperandTile, SmemRegion, align_up
from ptxgen.operand_maps import check_d_fits_tma, check_operand, d_fits_tma, tensor_map
from ptxgen.plans import Barrier, Plan
from ptxgen.problem import INTEGERS, NARROW_FLOATS, Gemm
from ptxgen.tcgen05_descriptors import InstructionDescriptor, SmemDescriptor
from ptxgen.tmem import AccumulatorLayout, TmemMap
from ptxgen.tmem_chunks import chunk_registers, chunks

NAME = "gemm_sm100"
UNIT = "tcgen05"
"""The tensor core's instruction, as ptxgen.verification models it."""
TARGETS = ("sm_100a", "sm_100f", "sm_103a")
TARGET = "sm_100a"
"""The target where none is asked for."""
I8_TARGETS = ("sm_100a",)
"""Targets of ours with kind i8."""
CTA_THREADS = 256
"""Four warps with one role each, and four epilogue warps."""
EPILOGUE_WARPS = 4
NUM_SMS = 148
"""SMs of a B200, when no device is given."""
SWIZZLES = (0, 32, 64, 128)
SCALES = ("none", "tensor", "rowcol")
MAX_STAGES = 32
MAX_CLUSTER_CTAS = 4
ANSWERS = 2
"""Answers of cluster launch control under way: enough to load a tile ahead of the epilogue."""
ANSWER_BYTES = 16
ONE_CTA_BYTES = 116 << 10
"""Shared memory that keeps a second CTA off the SM. Two CTAs that wait for each other's tensor
memory, each holding some, would wait for ever."""
RASTER_M_TILES = 8
"""Tiles along M that run side by side, so that their B tiles are read from L2."""
KINDS = {"bf16": "f16", "f16": "f16", "tf32": "tf32"}
"""Format of A -> kind; narrow floats are f8f6f4, integers are i8."""
ZERO_COLUMNS = 32
"""Columns that one tcgen05.st clears."""


@dataclass(frozen=True)
class Config:
    """What may be tuned, and what the text depends on. `str()` is its name."""

    a: str
    b: str
    d: str
    layout: str
    scale: str
    target: str = TARGET
    cta_group: int = 1
    """CTAs that work on one MMA: 1, or 2 (a pair along M, which splits both operands)."""
    tile_m: int = 128
    """Rows of D of one CTA; the MMA has cta_group times as many."""
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 4
    cluster_m: int = 1
    """CTAs of a cluster along M: pairs, which share B tiles."""
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

    def __str__(self) -> str:
        return "_".join(
            (
                NAME, self.target.removeprefix("sm_"), self.a, self.b, self.d, self.layout,
                self.scale, f"g{self.cta_group}", f"{self.tile_m}x{self.tile_n}x{self.tile_k}",
                f"s{self.stages}", f"c{self.cluster_m}x{self.cluster_n}", f"t{self.accumulators}",
                self.scheduler, f"swizzle{self.swizzle_bytes}", self.store,
            )
        )  # fmt: skip

    @property
    def kind(self) -> str:
        """The MMA's `.kind`."""
        return "i8" if self.a in INTEGERS else KINDS.get(self.a, "f8f6f4")

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def mma_m(self) -> int:
        """Rows of one MMA, over all CTAs that take part."""
        return self.tile_m * self.cta_group

    @property
    def a_tile(self) -> OperandTile:
        """A's tile in shared memory of one CTA: its own rows."""
        return OperandTile(
            dtype(self.a), self.layout[0] == "n", self.swizzle_bytes, self.tile_m, self.tile_k,
            self.cluster_n,
        )  # fmt: skip

    @property
    def b_tile(self) -> OperandTile:
        """B's tile in shared memory of one CTA: all columns, or half of them in a pair."""
        return OperandTile(
            dtype(self.b), self.layout[1] == "t", self.swizzle_bytes, self.tile_n // self.cta_group,
            self.tile_k, self.cluster_m // self.cta_group,
        )  # fmt: skip

    @property
    def accumulator(self) -> AccumulatorLayout:
        """Where this CTA's part of D stands in tensor memory."""
        return AccumulatorLayout.of(self.cta_group, self.tile_m, self.tile_n)

    @property
    def tmem(self) -> TmemMap:
        """Tensor memory of one CTA."""
        return TmemMap.lay_out(
            [(f"d[{i}]", self.accumulator.columns, "accumulator") for i in range(self.accumulators)]
        )

    @property
    def staging(self) -> DStaging | None:
        """How a warp's part of D goes through shared memory; None if it does not."""
        if self.store != "tma":
            return None
        layout = self.accumulator
        return DStaging(dtype(self.d), layout.columns, layout.warp_rows)

    @property
    def warp_buffer_bytes(self) -> int:
        """One staging buffer of one warp: 128 bytes of each of its rows."""
        return self.accumulator.warp_rows * 128 if self.store == "tma" else 0

    @property
    def staging_bytes(self) -> int:
        """Shared memory through which D is stored."""
        return EPILOGUE_WARPS * DStaging.NUM_BUFFERS * self.warp_buffer_bytes

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage."""
        return align_up(self.a_tile.nbytes, TILE_ALIGNMENT) + align_up(
            self.b_tile.nbytes, TILE_ALIGNMENT
        )

    @property
    def tail_bytes(self) -> int:
        """Shared memory of mbarriers, answers and the tensor memory address."""
        answers = ANSWERS * (ANSWER_BYTES + 2 * 8) if self.scheduler == "clc" else 0
        return align_up(2 * 8 * (self.stages + self.accumulators), ANSWER_BYTES) + answers + 8

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory that one CTA uses."""
        return self.stages * self.stage_bytes + self.staging_bytes + self.tail_bytes

    def check(self) -> None:
        """Refuse what cannot work, whatever the problem.

        Raises: ConfigError with rule, value, limit and what to try.
        """
        _check_values(self)
        _check_formats(self)
        _check_shape(self)
        for name, tile in (("tile_m", self.a_tile), ("tile_n", self.b_tile)):
            outer = tile.rows if tile.k_major else tile.k
            what = name if tile.k_major else "tile_k"
            if tile.slices > 1 and outer % (8 * tile.slices):
                raise ConfigError(
                    f"{what}={getattr(self, what)} leaves {outer} rows of a box for {tile.slices} "
                    f"CTAs of the cluster, which each load whole groups of 8; try a larger {what}"
                )
        _ = self.tmem
        limit = arch(self.target).smem_bytes
        if self.smem_bytes > limit:
            spare = limit - self.staging_bytes - self.tail_bytes + 16 * self.stages
            fit = (spare - 16) // (self.stage_bytes + 16)
            hint = f"try stages<={fit}" if fit > 0 else "try a smaller tile"
            raise ConfigError(
                f"stages={self.stages} of tile {self.tile_m}x{self.tile_n}x{self.tile_k} needs "
                f"{self.smem_bytes} B of shared memory, {self.target} has {limit} B; {hint}"
            )


def _check_values(config: Config) -> None:
    for name, allowed in (
        ("target", TARGETS),
        ("cta_group", (1, 2)),
        ("tile_m", (64, 128)),
        ("stages", range(1, MAX_STAGES + 1)),
        ("cluster_m", (1, 2, 4)),
        ("cluster_n", (1, 2, 4)),
        ("accumulators", (1, 2)),
        ("scheduler", ("static", "clc")),
        ("swizzle_bytes", SWIZZLES),
        ("store", ("tma", "global")),
    ):
        value = getattr(config, name)
        if isinstance(value, bool) or value not in allowed:
            shown = (
                f"from {allowed.start} to {allowed[-1]}"
                if isinstance(allowed, range)
                else f"one of {', '.join(map(str, allowed))}"
            )
            raise ConfigError(f"{name}={value!r} must be {shown}")
    if config.cluster_ctas > MAX_CLUSTER_CTAS or config.cluster_m % config.cta_group:
        raise ConfigError(
            f"cluster {config.cluster_m}x{config.cluster_n} must have at most {MAX_CLUSTER_CTAS} "
            f"CTAs, and whole pairs along M with cta_group=2; try {config.cta_group}x1"
        )


def _check_formats(config: Config) -> None:
    """Formats, layouts and swizzles that the MMA's kind has."""
    if config.kind == "i8" and config.target not in I8_TARGETS:
        raise ConfigError(
            f"{config.a} x {config.b} needs kind::i8, which {config.target} lacks; "
            f"must be {', '.join(I8_TARGETS)}; try e4m3"
        )
    for kind in (dtype(config.a), dtype(config.b)):
        if kind.is_packed and config.swizzle_bytes != 128:
            raise ConfigError(
                f"swizzle={config.swizzle_bytes or 'none'} with {kind}: TMA unpacks it in boxes of "
                "128 elements that must be swizzled by 128 bytes; try swizzle=128"
            )
    element_bytes = dtype(config.a).bytes
    widths = (config.swizzle_bytes,) if config.swizzle_bytes else (32, 64, 128)
    allowed = [w // element_bytes for w in widths]
    if config.tile_k not in allowed:
        raise ConfigError(
            f"tile_k={config.tile_k} of {config.a} must be {' or '.join(map(str, allowed))} "
            f"(one swizzle row of {' or '.join(map(str, widths))} bytes) with "
            f"swizzle={config.swizzle_bytes or 'none'}; try tile_k={allowed[-1]}"
        )


def tile_n_step(config: Config) -> int:
    """tile_n must be a multiple of this. N in 8s with 128 rows is untested anywhere, so refused."""
    step = 8 if config.mma_m == 64 else 16
    transposed_bytes = not config.b_tile.k_major and config.b_tile.dtype.bits == 8
    if config.cta_group == 1 and (transposed_bytes or (config.kind == "i8" and config.tile_n > 32)):
        step = 16
    if config.cta_group == 2 and (transposed_bytes or config.kind == "i8"):
        step = 32
    return step


def _check_shape(config: Config) -> None:
    """Shapes of one MMA. Source: shared/reference/ptx.md D4."""
    step = tile_n_step(config)
    n = config.tile_n
    if isinstance(n, bool) or n % step or not step <= n <= 256:
        raise ConfigError(
            f"tile_n={n} must be a multiple of {step} from {step} to 256 for kind::{config.kind} "
            f"with cta_group={config.cta_group}, {config.mma_m} rows and layout={config.layout}; "
            f"try tile_n={min(256, align_up(max(n, step), step))}"
        )


def static_fields(problem: Gemm) -> dict[str, str]:
    """The fields of a Config that the problem decides."""
    return {
        "a": problem.a,
        "b": problem.b,
        "d": problem.d,
        "layout": problem.layout,
        "scale": problem.scale,
    }


def default_config(problem: Gemm, **chosen: int | str) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    known = {f.name for f in fields(Config)}
    for name in chosen:
        if name not in known:
            raise ConfigError(f"{NAME} has no {name}; it has {', '.join(sorted(known))}")
    check_operands(problem)
    values: dict[str, int | str] = dict(static_fields(problem))
    values["store"] = "tma" if d_fits_tma(problem) else "global"
    values.update(chosen)
    swizzle = int(values.setdefault("swizzle_bytes", 128))
    values.setdefault("tile_k", (swizzle or 128) // dtype(problem.a).bytes)
    if "cta_group" not in values:
        alone = "cluster_m" in chosen and int(chosen["cluster_m"]) % 2
        values["cta_group"] = 1 if problem.m <= 128 or alone else 2
    group = int(values["cta_group"])
    values.setdefault("cluster_m", group)
    if "tile_m" not in values:
        values["tile_m"] = 64 if problem.m <= 64 * group else 128
    config = Config(**values)  # type: ignore[arg-type]
    _check_values(config)
    if "tile_n" not in chosen:
        step = tile_n_step(config)
        config = replace(config, tile_n=max(step, min(256, align_up(problem.n, step))))
    if "stages" not in chosen:
        config = replace(config, stages=_stages_that_fit(config))
    config.check()
    return config


def _stages_that_fit(config: Config) -> int:
    one = replace(config, stages=1)
    spare = arch(config.target).smem_bytes if config.target in TARGETS else 0
    return max(1, min(8, 1 + (spare - one.smem_bytes) // (config.stage_bytes + 16)))


def configs(problem: Gemm, target: str = TARGET) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    base = default_config(problem, target=target)
    for cta_group, (cluster_m, cluster_n) in (
        (1, (1, 1)), (1, (2, 1)), (1, (1, 2)), (2, (2, 1)), (2, (4, 1)), (2, (2, 2)),
    ):  # fmt: skip
        for tile_m in (64, 128):
            for tile_n in range(8, 257, 8):
                for swizzle_bytes in SWIZZLES:
                    for scheduler in ("static", "clc"):
                        config = replace(
                            base, cta_group=cta_group, cluster_m=cluster_m, cluster_n=cluster_n,
                            tile_m=tile_m, tile_n=tile_n, swizzle_bytes=swizzle_bytes,
                            tile_k=(swizzle_bytes or 128) // dtype(problem.a).bytes,
                            scheduler=scheduler,
                        )  # fmt: skip
                        config = replace(config, stages=_stages_that_fit(config))
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
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=config.target,
        version=arch(config.target).min_ptx_version,
        launch=_launch(problem, config, num_sms),
        smem_map=_smem_map(config),
        barriers=_barriers(config),
        parts={
            "scheduler": f"scheduler_{config.scheduler}",
            "producer": "producer_tcgen05",
            "mainloop": "mainloop_tcgen05",
            "scale": "scale_raw" if config.d == "s32" else f"scale_{config.scale}",
            "epilogue": f"epilogue_{config.store}_tcgen05",
        },
        fields=_fields(config),
    )


def check_operands(problem: Gemm) -> None:
    """Refuse what no configuration computes, and operands that TMA cannot take.

    Raises: ConfigError.
    """
    if problem.a not in (*KINDS, *NARROW_FLOATS, *INTEGERS):
        raise ConfigError(f"{NAME} does not multiply {problem.a} x {problem.b}")
    if problem.accumulate != "fast":
        raise ConfigError(
            f"accumulate={problem.accumulate} must be fast: tcgen05 sums every format with 25 "
            "fraction bits, so there is nothing to promote"
        )
    if problem.scale not in SCALES:
        raise ConfigError(f"{NAME} has no scale={problem.scale}; must be {', '.join(SCALES)}")
    for operand, transposed in (("a", problem.layout[0] == "t"), ("b", problem.layout[1] == "n")):
        kind = dtype(getattr(problem, operand))
        if transposed and (kind.is_packed or kind.name == "tf32"):
            raise ConfigError(
                f"layout={problem.layout}: {operand.upper()} of {kind} must be K-major, since "
                "tcgen05 transposes 8- and 16-bit formats only; try layout=nt"
            )
        check_operand(problem, operand)


def _check_serves(problem: Gemm, config: Config) -> None:
    check_operands(problem)
    for name, value in static_fields(problem).items():
        if getattr(config, name) != value:
            raise ConfigError(
                f"config has {name}={getattr(config, name)}, the problem has {name}={value}; "
                "they must agree"
            )
    if config.store == "tma":
        check_d_fits_tma(problem)


def _offsets(config: Config) -> dict[str, int]:
    """Byte offsets in dynamic shared memory of what follows the stages."""
    offsets, place = {}, config.stages * config.stage_bytes
    sizes = {
        "d": config.staging_bytes,
        "full": 8 * config.stages,
        "empty": 8 * config.stages,
        "tmem_full": 8 * config.accumulators,
        "tmem_empty": 8 * config.accumulators,
    }
    if config.scheduler == "clc":
        sizes |= {"answered": 8 * ANSWERS, "read": 8 * ANSWERS, "answer": ANSWER_BYTES * ANSWERS}
    for name, nbytes in sizes.items():
        place = align_up(place, ANSWER_BYTES) if name == "answer" else place
        offsets[name] = place
        place += nbytes
    offsets["tmem_slot"] = place
    return offsets


def _smem_map(config: Config) -> tuple[SmemRegion, ...]:
    a_bytes = align_up(config.a_tile.nbytes, TILE_ALIGNMENT)
    regions = []
    for stage in range(config.stages):
        offset = stage * config.stage_bytes
        regions.append(SmemRegion(f"a[{stage}]", offset, config.a_tile.nbytes, "A tile"))
        regions.append(SmemRegion(f"b[{stage}]", offset + a_bytes, config.b_tile.nbytes, "B tile"))
    offsets = _offsets(config)
    if config.staging_bytes:
        what = f"D staging, {DStaging.NUM_BUFFERS} buffers per epilogue warp"
        regions.append(SmemRegion("d", offsets["d"], config.staging_bytes, what))
    for barrier in _barriers(config):
        regions.append(
            SmemRegion(barrier.name, offsets[barrier.name], 8 * barrier.count, "mbarriers")
        )
    if config.scheduler == "clc":
        size = ANSWER_BYTES * ANSWERS
        regions.append(SmemRegion("answer", offsets["answer"], size, "which tile comes next"))
    regions.append(SmemRegion("tmem_slot", offsets["tmem_slot"], 4, "tensor memory address"))
    return tuple(regions)


def _barriers(config: Config) -> tuple[Barrier, ...]:
    pairs_m = config.cluster_m // config.cta_group
    issuers = pairs_m + config.cluster_n - 1
    pair = " of the leader" if config.cta_group == 2 else ""
    both = " of both CTAs" if config.cta_group == 2 else ""
    tx_bytes = config.cta_group * (config.a_tile.tx_bytes + config.b_tile.tx_bytes)
    barriers = [
        Barrier("full", config.stages, 1, tx_bytes,
                f"the producer{pair}, by arrive.expect_tx; TMA{both} counts the bytes down",
                f"the MMA thread{pair}"),
        Barrier("empty", config.stages, issuers, 0,
                "tcgen05.commit of every MMA thread whose stages this CTA loads into",
                "the producer"),
        Barrier("tmem_full", config.accumulators, 1, 0,
                "tcgen05.commit after a tile's last MMA", "all epilogue threads"),
        Barrier("tmem_empty", config.accumulators, EPILOGUE_WARPS * config.cta_group, 0,
                f"one lane of every epilogue warp{both}, after its last load of the tile",
                f"the MMA thread{pair}"),
    ]  # fmt: skip
    if config.scheduler == "clc":
        mma_threads = config.cluster_ctas // config.cta_group
        readers = config.cluster_ctas * (1 + EPILOGUE_WARPS) + mma_threads + 1
        barriers += [
            Barrier("answered", ANSWERS, 1, ANSWER_BYTES,
                    "the thread of CTA 0 that asks, by arrive.expect_tx; the answer's bytes",
                    "producer, MMA thread and epilogue of every CTA, and the thread that asks"),
            Barrier("read", ANSWERS, readers, 0,
                    "everyone who waits for the answer, one lane of a warp",
                    "the thread that asks"),
        ]  # fmt: skip
    return tuple(barriers)


def _launch(problem: Gemm, config: Config, num_sms: int) -> Launch:
    num_m_tiles = -(-problem.m // (config.tile_m * config.cluster_m))
    num_n_tiles = -(-problem.n // (config.tile_n * config.cluster_n))
    num_tiles = num_m_tiles * num_n_tiles
    clusters = max(1, num_tiles)
    if config.scheduler == "static":
        clusters = max(1, min(num_tiles, num_sms // config.cluster_ctas))
    swizzle = f"{config.swizzle_bytes}B" if config.swizzle_bytes else "none"
    params = [
        Param("a_map", "tensor_map", tensor_map(problem, "a", config.a_tile.box, swizzle)),
        Param("b_map", "tensor_map", tensor_map(problem, "b", config.b_tile.box, swizzle)),
    ]
    staging = config.staging
    if staging:
        d_map = tensor_map(problem, "d", staging.box, staging.swizzle)
        params.append(Param("d_map", "tensor_map", d_map))
    else:
        stride_bytes = problem.stride("d") * dtype(problem.d).bytes
        params.append(Param("d_pointer", "pointer", "d"))
        params.append(Param("d_stride_bytes", "u64", stride_bytes))
    if config.scale != "none":
        params.append(Param("scale_a", "pointer", "scale_a"))
        params.append(Param("scale_b", "pointer", "scale_b"))
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
        cta_threads=(CTA_THREADS, 1, 1),
        cluster_ctas=(config.cluster_ctas, 1, 1),
        dynamic_smem_bytes=max(config.smem_bytes, ONE_CTA_BYTES),
        params=tuple(params),
        buffers=tuple(buffers),
    )


def _fields(config: Config) -> dict[str, object]:
    return {
        "config": config,
        "kind": config.kind,
        "mma_m": config.mma_m,
        "mma_k": config.a_tile.mma_k,
        "cta_threads": CTA_THREADS,
        "stages": config.stages,
        "asks_for_tiles": config.scheduler == "clc",
        "answers": ANSWERS,
        "tmem": config.tmem,
        "initialised_barriers": _initialised_barriers(config),
        **{f"{name}_offset": offset for name, offset in _offsets(config).items()},
        **_cluster_fields(config),
        **_operand_fields(config),
        **_epilogue_fields(config),
    }


def _initialised_barriers(config: Config) -> list[dict[str, object]]:
    offsets = _offsets(config)
    return [
        {
            "name": f"{barrier.name}[{i}]",
            "offset": offsets[barrier.name] + 8 * i,
            "arrivals": barrier.arrivals,
        }
        for barrier in _barriers(config)
        for i in range(barrier.count)
    ]


def _cluster_fields(config: Config) -> dict[str, object]:
    """Ranks and masks. Rank = m rank + cluster_m * n rank; a pair is two neighbours along M."""
    group, cluster_m = config.cta_group, config.cluster_m
    a_mask = sum(1 << (n * cluster_m) for n in range(config.cluster_n))
    pair_bits = (1 << group) - 1
    return {
        "cluster_ctas": config.cluster_ctas,
        "cluster_shift": config.cluster_ctas.bit_length() - 1,
        "cluster_ranks": list(range(config.cluster_ctas)),
        "clustered": config.cluster_ctas > 1,
        "paired": group == 2,
        "pair_mask": group - 1,
        "pair_shift": group - 1,
        "cluster_m_mask": cluster_m - 1,
        "cluster_m_shift": cluster_m.bit_length() - 1,
        "shares_a": config.a_tile.is_shared,
        "shares_b": config.b_tile.is_shared,
        "a_mask": a_mask,
        "b_mask": sum(1 << (i * group) for i in range(cluster_m // group)),
        "multicasts_commit": config.cluster_ctas > 1,
        "a_free_mask": a_mask * pair_bits,
        "b_free_mask": (1 << cluster_m) - 1,
    }


def _operand_fields(config: Config) -> dict[str, object]:
    a, b = config.a_tile, config.b_tile
    swizzle = f"{config.swizzle_bytes}B" if config.swizzle_bytes else "none"
    descriptors = [
        SmemDescriptor(t.descriptor.leading_bytes, t.descriptor.stride_bytes, swizzle).encode()
        for t in (a, b)
    ]
    pair = ".cta_group::2" if config.cta_group == 2 else ""
    return {
        "a": a,
        "b": b,
        "b_rows": b.rows,
        "stage_bytes": config.stage_bytes,
        "stage_units": config.stage_bytes >> 4,
        "b_offset": align_up(a.nbytes, TILE_ALIGNMENT),
        "tx_bytes": _barriers(config)[0].tx_bytes,
        "a_descriptor": hex(descriptors[0]),
        "b_descriptor": hex(descriptors[1]),
        "instruction_descriptor": hex(
            InstructionDescriptor(
                config.kind, config.a, config.b, "s32" if config.kind == "i8" else "f32",
                config.mma_m, config.tile_n, a.k_major, b.k_major,
            ).encode()
        ),
        "operands": [
            {
                "tile": tile,
                "map": f"%{name}_map",
                "smem": f"%{name}_smem",
                "row": f"%{name}_row",
                "k": f"%{name}_k",
                "qualifiers": (".multicast::cluster" if tile.is_shared else "") + pair,
                "mask": f", %{name}_mask" if tile.is_shared else "",
            }
            for name, tile in (("a", a), ("b", b))
        ],
        "k_steps": [
            {
                "a_units": step * a.k_step_bytes >> 4,
                "b_units": step * b.k_step_bytes >> 4,
                "accumulate": "1" if step else "%accumulate",
            }
            for step in range(config.tile_k * a.dtype.bytes // MMA_K_BYTES)
        ],
    }  # fmt: skip


def _epilogue_fields(config: Config) -> dict[str, object]:
    layout, staging, d = config.accumulator, config.staging, dtype(config.d)
    integer = config.kind == "i8" and config.d != "s32"
    return {
        "layout_letter": layout.letter,
        "accumulator_columns": layout.columns,
        "warp_rows": layout.warp_rows,
        "warp_columns": layout.columns,
        "row_warp_mask": layout.row_warps - 1,
        "row_warp_shift": layout.row_warps.bit_length() - 1,
        "integer": integer,
        "chunks": chunks(layout, staging, integer),
        "chunk_registers": chunk_registers(layout, staging),
        "zero_columns": list(range(0, layout.columns, ZERO_COLUMNS)),
        "zero_registers": "{" + ", ".join(["%zero"] * ZERO_COLUMNS) + "}",
        "staging": staging,
        "staging_bytes": DStaging.NUM_BUFFERS * config.warp_buffer_bytes,
        "staging_buffer_bytes": config.warp_buffer_bytes,
        "packed": d.bytes == 2,
        "d_bytes": d.bytes,
        "store_type": "b16" if d.bytes == 2 else "b32",
        "pack": {"bf16": "cvt.rn.bf16x2.f32", "f16": "cvt.rn.f16x2.f32"}.get(config.d, ""),
        "convert": {"bf16": "cvt.rn.bf16.f32", "f16": "cvt.rn.f16.f32"}.get(config.d, "mov.b32"),
    }

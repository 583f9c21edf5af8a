"""swap_selection: whether grouped operands are swapped, and with which config, and why.

Swapped, B takes the 64 rows of a wgmma and the rows of A its columns, which come in eights: few
rows per group then waste nothing. Straight, they are padded to 64. Whether that matters depends on
what the GPU waits for: where weights stream from memory for longer than the padded wgmma take, the
padding is free. So the choice follows from a model of both, and not from the number of rows alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from ptxgen.devices import GpuModel, gpu_model
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_kernel_for, grouped_sm90, target_fields
from ptxgen.kernels.grouped_config import COARSE_STEP, Config
from ptxgen.kernels.grouped_operands import check_serves
from ptxgen.kernels.grouped_schedule import run_length
from ptxgen.layout import MMA_M, align_up
from ptxgen.problem import FP8

DEFAULT_GPU = "H200"
CLOCK_HZ = 1.5e9
"""SM clock while the Tensor Core works at full power. Measured on an H200: 1.4 to 1.6 GHz."""
STREAM_SHARE = 0.945
"""Part of the published DRAM bandwidth that a read stream reaches, measured: 4.5 of 4.8 TB/s."""
FP8_MACS = 4096
"""Multiply-adds of one Hopper SM per clock, in FP8; half of it in 16-bit formats."""
HOPPER_FP8_TFLOPS = 1979.0
"""The published rate of a full Hopper with 132 SMs, which FP8_MACS stands for."""
HOPPER_SMS = 132
SMEM_BYTES_PER_CLOCK = 128
"""What shared memory takes or gives in a clock: tiles that arrive, operands of wgmma, scales."""
L2_BYTES_PER_S = 75e9
"""What one SM takes from the L2. Measured on an H200: 10 TB/s for its 132."""
PROMOTION_CLOCKS = 2.0
"""Clocks of a warp for each value that it adds in FP32."""
K_TILE_CLOCKS = 130
"""What one k-tile costs a warpgroup beside wgmma and promotion: barriers and latencies."""
TILE_CLOCKS = 1500
"""Epilogue of one tile: scale, stage, store."""
LAUNCH_S = 5.5e-6
"""Launch, the first tile's description and loads, the last tile's store."""
HIGHEST, HIGHEST_PROMOTED = 256, 128
"""Rows of A that a swapped tile can have, and with promotion: higher ones took two fifths longer
than straight tiles of 192 rows on an H200."""
ROOMY = 64
"""Rows up to which a swapped tile is higher than expected."""
CLEAR_S = 2.0e-6
"""What it takes to clear the rows of A that no tile has loaded yet, where wgmma may read them.
Fitted with BLEND; a straight kernel of 8 rows is 0.6 to 5 us slower than a swapped one."""
JOIN_S = 1.5e-6
"""What it takes to hand sums over and add them, where tiles are shared along K."""
SPREAD = 0.03
"""Part of the time until the last wave by which CTAs then differ: who joins sums waits for the
slowest. Fitted with JOIN_S to 12 problems on an H200, whose launches took 1 to 5 us longer than
the k-tiles of the last wave that were saved."""
BLEND = 3.3
"""Time of two things that go on at once: (x^BLEND + y^BLEND)^(1/BLEND). Fitted to 200 points of an
H200: 16 groups of 8 to 256 rows, three sizes of weights, five kinds of tiles."""


@dataclass(frozen=True)
class Published:
    """A rule that others published."""

    who: str
    rule: str
    source: str


PUBLISHED = (
    Published("TensorRT-LLM", "swap below 64 rows per expert on 78 SMs (H20), else below 32",
              "NVIDIA/TensorRT-LLM#4430"),
    Published("FlashInfer", "swap below 32 rows", "flashinfer-ai/flashinfer#2131"),
    Published("DeepGEMM, open pull request", "swap where m % 64 < 32, on H20",
              "deepseek-ai/DeepGEMM#192; slower in every case on an H100 there"),
    Published("SGLang TileLang", "swap up to 32 rows, on H20", "sgl-project/sglang#15763"),
)  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """What the model predicts for one config."""

    config: Config
    seconds: float
    memory_seconds: float
    """All bytes at the bandwidth that streams reach."""
    l2_seconds: float
    """What the SM with the most tiles takes from the L2."""
    compute_seconds: float
    """wgmma, shared memory, promotion and epilogues of that SM."""
    computed_rows: int
    """Rows that wgmma multiplies for one group, padding included."""

    @property
    def bound(self) -> str:
        """Which of the three takes longest."""
        terms = {
            "memory": self.memory_seconds, "L2": self.l2_seconds, "compute": self.compute_seconds,
        }  # fmt: skip
        return max(terms, key=lambda name: terms[name])


@dataclass(frozen=True)
class SwapChoice:
    """The config that was chosen, and the best of either kind."""

    config: Config
    why: str
    """One sentence."""
    straight: Estimate | None
    swapped: Estimate | None
    published: tuple[Published, ...] = PUBLISHED


def expected_rows_of(problem: GroupedGemm) -> int:
    """Rows per group (kgrouped: of K) that are reckoned with where nobody says how many."""
    return {
        "masked": ceil(problem.m / 2), "batched": problem.m,
        "contiguous": ceil(problem.m / problem.groups),
        "kgrouped": ceil(problem.k / problem.groups),
    }[problem.mode]  # fmt: skip


def config_for(
    problem: GroupedGemm,
    expected_rows: int | None = None,
    arch: str = grouped_sm90.TARGET,
    device: GpuModel | str = DEFAULT_GPU,
    swap_ab: str = "auto",
    chosen: Mapping[str, int | str | bool] | None = None,
) -> Any:
    """The config of the kernel that serves `problem` on `arch`: what `choose_swap` takes, or the
    default one of kernels for tcgen05.

    expected_rows: None = `expected_rows_of`. The rest as for `choose_swap`.

    Raises: ConfigError if no kernel or config serves the problem.
    """
    kernel = grouped_kernel_for(problem, arch)
    if kernel.UNIT == "wgmma":
        rows = expected_rows_of(problem) if expected_rows is None else expected_rows
        return choose_swap(problem, rows, device, swap_ab, chosen).config
    told = {} if swap_ab == "auto" else {"swap_ab": swap_ab == "on"}
    return kernel.default_config(problem, **target_fields(kernel, arch), **told, **(chosen or {}))


def choose_swap(
    problem: GroupedGemm,
    expected_rows: int,
    device: GpuModel | str = DEFAULT_GPU,
    swap_ab: str = "auto",
    chosen: Mapping[str, int | str | bool] | None = None,
) -> SwapChoice:
    """The config for `problem` on `device` where groups have about `expected_rows` rows.

    swap_ab: auto, on or off. chosen: fields of the Config that are given. stream_k only if chosen:
    with it a row's bits depend on other groups, and another height or width of tiles fills the last
    wave as well (measured on an H200).

    Raises: ConfigError if no config serves the problem.
    """
    gpu = gpu_model(device) if isinstance(device, str) else device
    best: dict[bool, Estimate] = {}
    refusal: ConfigError | None = None
    for swapped in (False, True):
        if swap_ab == ("off" if swapped else "on"):
            continue
        for fields in _candidates(problem, expected_rows, swapped, dict(chosen or {})):
            try:
                config = grouped_sm90.default_config(problem, **fields)
                check_serves(problem, config)
            except ConfigError as error:
                refusal = refusal or error
                continue
            found = estimate(problem, expected_rows, config, gpu)
            if swapped not in best or found.seconds < best[swapped].seconds:
                best[swapped] = found
    if not best:
        assert refusal is not None
        raise refusal
    straight, turned = best.get(False), best.get(True)
    taken = min(best.values(), key=lambda e: e.seconds)
    return SwapChoice(taken.config, _why(taken, straight, turned, expected_rows, gpu),
                      straight, turned)  # fmt: skip


def _why(
    taken: Estimate, straight: Estimate | None, swapped: Estimate | None, rows: int, gpu: GpuModel
) -> str:
    kind = "swapped" if taken.config.swap_ab else "not swapped"
    if taken.config.stream_k:
        kind += ", the last wave's tiles shared along K"
    text = (
        f"{kind}: predicted {taken.seconds * 1e6:.1f} us on {gpu.name} for {rows} rows per group, "
        f"bound by {taken.bound}, {taken.computed_rows} rows computed"
    )
    other = straight if taken is swapped else swapped
    if other is None:
        return f"{text}; the other was not asked for, or does not serve"
    return (
        f"{text}; {'swapped' if other.config.swap_ab else 'not swapped'} {other.seconds * 1e6:.1f} "
        f"us, bound by {other.bound}, {other.computed_rows} rows computed"
    )


def _candidates(
    problem: GroupedGemm, rows: int, swapped: bool, chosen: dict[str, int | str | bool]
) -> list[dict[str, int | str | bool]]:
    """Fields of the configs that are compared."""
    found: list[dict[str, int | str | bool]] = []
    if swapped:
        up = align_up(max(rows, 1), 8)
        least = ceil(up / HIGHEST_PROMOTED)
        parts = {least, least + 1, least + 2}
        if problem.accumulate != "promoted":
            parts.add(ceil(up / HIGHEST))
        heights = sorted({align_up(ceil(up / n), 8) for n in parts})
        # groups differ: room for twice the rows costs nothing while loops are narrow
        heights = [min(2 * up, ROOMY)] if up <= ROOMY else heights
        for tile_m in heights:
            for tile_n in (128, 64):
                step = 8 if tile_m <= 64 else 16 if tile_m <= 128 else 32
                step = COARSE_STEP if problem.mode == "kgrouped" else step
                found.append(
                    {"swap_ab": True, "tile_m": tile_m, "tile_n": tile_n, "token_step": step}
                )
    else:
        for tile_m, warpgroups in ((64, 1), (128, 2), (192, 3), (128, 1), (192, 1), (256, 2)):
            for tile_n in (128, 256, 192, 112, 96, 64):
                found.append(
                    {"swap_ab": False, "tile_m": tile_m, "tile_n": tile_n,
                     "warpgroups": warpgroups}
                )  # fmt: skip
    return [{**fields, **chosen} for fields in found]


def estimate(problem: GroupedGemm, rows: int, config: Config, gpu: GpuModel) -> Estimate:
    """Time of `config` where every group has `rows` rows (kgrouped: of K)."""
    m, k = (problem.m, rows) if problem.mode == "kgrouped" else (rows, problem.k)
    size = dtype(problem.a).bytes
    k_tiles = max(1, ceil(k / config.tile_k))
    m_tiles = max(1, ceil(m / (config.tile_m * config.cluster_m))) * config.cluster_m
    n_tiles = max(1, ceil(problem.n / (config.tile_n * config.cluster_n))) * config.cluster_n
    tiles = problem.groups * m_tiles * n_tiles
    turns: float = ceil(tiles / gpu.num_sms)
    rest = tiles % gpu.num_sms if config.stream_k else 0
    run = run_length(rest, k_tiles, gpu.num_sms) if rest else k_tiles
    turns += run / k_tiles - 1
    loaded = align_up(ceil(max(m, 1) / m_tiles), 8)
    computed = _computed_rows(config, m, m_tiles, turns)
    clocks = turns * (k_tiles * _k_tile_clocks(config, computed, loaded, gpu) + TILE_CLOCKS)
    l2_bytes = turns * k_tiles * (loaded + config.tile_n) * config.tile_k * size
    d_bytes = m * problem.n * dtype(problem.d).bytes * (2 if problem.mode == "kgrouped" else 1)
    memory = problem.groups * (k * size * (align_up(m, 8) + problem.n) + d_bytes)
    memory_s = memory / (gpu.dram_gbytes_per_s * 1e9 * STREAM_SHARE)
    l2_s, compute_s = l2_bytes / L2_BYTES_PER_S, clocks / CLOCK_HZ
    seconds = (memory_s**BLEND + max(l2_s, compute_s) ** BLEND) ** (1 / BLEND) + LAUNCH_S
    if run < k_tiles:
        seconds += JOIN_S + SPREAD * seconds * (tiles // gpu.num_sms) / turns
    seconds += CLEAR_S if config.clears_a else 0.0
    return Estimate(config, seconds, memory_s, l2_s, compute_s, round(computed * m_tiles))


def _computed_rows(config: Config, m: int, m_tiles: int, turns: float) -> float:
    """Rows of a tile of a group as wgmma multiplies them: of the highest, or, where each CTA gets
    tiles of all heights, on average."""
    rows = ceil(max(m, 1) / m_tiles)
    if not config.swap_ab:
        if turns >= 2 * m_tiles:
            return align_up(max(m, 1), MMA_M) / m_tiles
        return min(config.tile_m, align_up(rows, MMA_M))
    return next(n for n in config.mma_columns if n >= min(align_up(rows, 8), config.tile_m))


def _k_tile_clocks(config: Config, computed: float, loaded: int, gpu: GpuModel) -> float:
    """Clocks of one k-tile of one tile: the Tensor Core's, those of shared memory, or the sum of
    wgmma and promotion with its factors: with one set of accumulators two warpgroups hardly
    overlap them, three do by half."""
    macs = FP8_MACS * gpu.fp8_tflops / HOPPER_FP8_TFLOPS * HOPPER_SMS / gpu.num_sms
    if config.a not in FP8:
        macs /= 2
    rows, columns = (config.tile_n, computed) if config.swap_ab else (computed, config.tile_n)
    blocks = rows / MMA_M
    multiply = blocks * MMA_M * columns * config.tile_k / macs
    row_bytes = config.tile_k * dtype(config.a).bytes
    moved = (blocks * (MMA_M + columns) + config.tile_n + loaded) * row_bytes
    factors = 0.0
    if config.block_scaled and not config.has_one_factor:
        # each of a block's four warps reads two floats per lane for every 8 columns, 256 bytes
        factors = blocks * 4 * (columns / 8) * 256 / SMEM_BYTES_PER_CLOCK
    shared = moved / SMEM_BYTES_PER_CLOCK + factors
    if config.accumulate != "promoted":
        return max(multiply, shared, K_TILE_CLOCKS)
    busy = min(ceil(blocks), config.warpgroups)
    added = ceil(blocks / busy) * (columns / 2 * PROMOTION_CLOCKS + K_TILE_CLOCKS)
    if config.overlaps_promotion(config.mma_columns[-1]):
        return max(multiply, shared, added)
    return max(shared, multiply + (added + factors) / max(1, busy - 1))

"""swap_selection: whether grouped operands are swapped, and with which config, and why.

Swapped, B takes the 64 rows of a wgmma and the rows of A its columns, which come in eights: few
rows per group then waste nothing. Straight, they are padded to 64. Whether that matters depends on
what the GPU waits for: where weights stream from memory for longer than the padded wgmma take, the
padding is free. So the choice follows from a model of both, and not from the number of rows alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from ptxgen.devices import GpuModel, gpu_model
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm90
from ptxgen.kernels.grouped_config import Config
from ptxgen.kernels.grouped_operands import check_serves
from ptxgen.layout import MMA_M, align_up
from ptxgen.problem import FP8

DEFAULT_GPU = "H200"
CLOCK_HZ = 1.755e9
"""SM clock while weights stream. Source: an H200 under these kernels."""
STREAM_SHARE = 0.90
"""Part of the published DRAM bandwidth that weights reach, measured: 4.3 of 4.8 TB/s."""
FP8_MACS = 4096
"""Multiply-adds of one Hopper SM per clock, in FP8; half of it in 16-bit formats."""
HOPPER_FP8_TFLOPS = 1979.0
"""The published rate of a full Hopper with 132 SMs, which FP8_MACS stands for."""
HOPPER_SMS = 132
SMEM_BYTES_PER_CLOCK = 128
L2_BYTES_PER_S = 6.8e12
"""What all SMs take from the L2 while it is being filled from memory: measured."""
PROMOTION_CLOCKS = 2.0
"""Clocks of a warp for each value that it adds in FP32, with its share of loads and factors."""
K_TILE_CLOCKS = 130
"""What one k-tile costs a warpgroup beside wgmma and promotion: barriers and latencies."""
TILE_CLOCKS = 1500
"""Epilogue of one tile: scale, stage, store."""
LAUNCH_S = 4.0e-6
"""Launch, the first tile's description and loads, the last tile's store."""


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
    """What the SMs take from the L2."""
    compute_seconds: float
    """wgmma, promotion and epilogues of the SM with the most tiles."""
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


def choose_swap(
    problem: GroupedGemm,
    expected_rows: int,
    device: GpuModel | str = DEFAULT_GPU,
    swap_ab: str = "auto",
    chosen: Mapping[str, int | str | bool] | None = None,
) -> SwapChoice:
    """The config for `problem` on `device` where groups have about `expected_rows` rows.

    swap_ab: auto, on or off. chosen: fields of the Config that are given.

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
        heights = sorted({min(up, 256), *(align_up(ceil(up / parts), 8) for parts in (2, 3, 4))})
        for tile_m in heights:
            for tile_n in (128, 256, 64):
                step = 8 if tile_m <= 64 else 16 if tile_m <= 128 else 32
                found.append(
                    {"swap_ab": True, "tile_m": tile_m, "tile_n": tile_n, "token_step": step}
                )
    else:
        for tile_m, warpgroups in ((64, 1), (128, 2), (128, 1), (192, 1), (256, 2)):
            for tile_n in (128, 256, 192, 64):
                found.append(
                    {"swap_ab": False, "tile_m": tile_m, "tile_n": tile_n,
                     "warpgroups": warpgroups}
                )  # fmt: skip
    clusters = ((1, 1), (1, 2)) if not {"cluster_m", "cluster_n"} & set(chosen) else ((0, 0),)
    return [
        {**fields, **({"cluster_m": m, "cluster_n": n} if m else {}), **chosen}
        for fields in found
        for m, n in clusters
    ]


def estimate(problem: GroupedGemm, rows: int, config: Config, gpu: GpuModel) -> Estimate:
    """Time of `config` where every group has `rows` rows (kgrouped: of K).

    A tile's k-tile costs the Tensor Core the larger of its multiplications and its reads of shared
    memory; each warpgroup's promotion runs beside another's wgmma.
    """
    m, k = (problem.m, rows) if problem.mode == "kgrouped" else (rows, problem.k)
    size = dtype(problem.a).bytes
    k_tiles = max(1, ceil(k / config.tile_k))
    m_tiles = max(1, ceil(m / (config.tile_m * config.cluster_m))) * config.cluster_m
    n_tiles = max(1, ceil(problem.n / (config.tile_n * config.cluster_n))) * config.cluster_n
    height = _height(config, m, m_tiles)
    clocks = _k_tile_clocks(config, height, gpu)
    tiles = problem.groups * m_tiles * n_tiles
    compute_clocks = ceil(tiles / gpu.num_sms) * (k_tiles * clocks + TILE_CLOCKS)
    a_bytes = k * size * min(height * m_tiles, align_up(m, 8))
    b_bytes = k * size * problem.n
    d_bytes = m * problem.n * dtype(problem.d).bytes * (2 if problem.mode == "kgrouped" else 1)
    l2 = problem.groups * (
        a_bytes * n_tiles / config.cluster_n + b_bytes * m_tiles / config.cluster_m
    )
    memory = problem.groups * (a_bytes + b_bytes + d_bytes)
    terms = (
        memory / (gpu.dram_gbytes_per_s * 1e9 * STREAM_SHARE),
        l2 / (L2_BYTES_PER_S * gpu.num_sms / HOPPER_SMS),
        compute_clocks / CLOCK_HZ,
    )
    return Estimate(config, max(terms) + 0.15 * (sum(terms) - max(terms)) + LAUNCH_S, *terms,
                    computed_rows=height * m_tiles)  # fmt: skip


def _height(config: Config, m: int, m_tiles: int) -> int:
    """Rows that wgmma computes of one tile."""
    if not config.swap_ab:
        return min(config.tile_m, align_up(max(m, 1), MMA_M))
    rows = align_up(ceil(max(m, 1) / m_tiles), 8)
    return next(n for n in config.mma_columns if n >= min(rows, config.tile_m))


def _k_tile_clocks(config: Config, height: int, gpu: GpuModel) -> float:
    """Clocks of one k-tile of one tile."""
    macs = FP8_MACS * gpu.fp8_tflops / HOPPER_FP8_TFLOPS * HOPPER_SMS / gpu.num_sms
    if config.a not in FP8:
        macs /= 2
    rows, columns = (config.tile_n, height) if config.swap_ab else (height, config.tile_n)
    blocks = rows // MMA_M
    multiply = blocks * MMA_M * columns * config.tile_k / macs
    row_bytes = config.tile_k * dtype(config.a).bytes
    reads = blocks * (MMA_M + columns) * row_bytes
    fills = (config.tile_n + height) * row_bytes
    tensor = max(multiply, (reads + fills) / SMEM_BYTES_PER_CLOCK)
    if config.accumulate != "promoted":
        return max(tensor, K_TILE_CLOCKS)
    per_warp = ceil(blocks / config.warpgroups) * columns / 2 * PROMOTION_CLOCKS + K_TILE_CLOCKS
    mine = multiply / config.warpgroups
    if config.overlaps_promotion(columns if config.swap_ab else config.tile_n):
        return max(tensor, per_warp)
    if config.takes_turns:
        return max(tensor + K_TILE_CLOCKS, mine + per_warp)
    return max(tensor, mine + per_warp) if config.warpgroups == 1 else tensor + per_warp

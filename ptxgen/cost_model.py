"""cost_model: how long a config takes on a GPU, by a few terms that can be read.

The model ranks configs; it does not predict times well enough to replace measurement. Tiles run in
waves, one per SM at a time. A full wave takes as long as the slowest of these: the Tensor Core
(which shared memory may hold up), the L2 and the DRAM; the last wave has fewer tiles, and so less
bandwidth in use and the same compute time.

Source of the constants: benchmarks/peers/h200.json (sustained wgmma and copy rates of an H200) and
DeepGEMM's heuristics for SM90 (bytes per clock of L2 and shared memory).
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from ptxgen.devices import GpuModel
from ptxgen.dtypes import dtype
from ptxgen.problem import PROMOTION_K, Gemm

SUSTAINED_MMA = 0.865
"""Share of the published Tensor Core rate that remains at full power."""
SUSTAINED_DRAM = 0.93
"""Share of the published DRAM bandwidth that reading reaches."""
CLOCK_HZ = 1.6e9
"""SM clock at full power."""
SMEM_BYTES_PER_CLOCK = 128
"""Shared memory of one SM, reads and writes together; TMA writes one box row per clock."""
UNSWIZZLED_ROW_BYTES = 16
"""Bytes of a box row without swizzle."""
L2_BYTES_PER_CLOCK = 64
"""What one SM takes from the L2."""
L2_TOTAL_BYTES_PER_S = 1.04e13
"""What all SMs of a full Hopper take from the L2: a GEMM of 128x256 tiles without multicast was
measured at 9.0e12 with the Tensor Core as its limit."""
FULL_HOPPER_SMS = 132
DRAM_LATENCY_S = 1.1e-6
"""From a load's issue to its bytes, with the memory busy."""
LAUNCH_S = 2.5e-6
"""Launch, the first load's latency and the end of the grid."""
WARP_FP32_PER_CLOCK = 128
"""FP32 additions of one SM per clock."""
EPILOGUE_FIXED_CLOCKS = 800
"""Draining wgmma, barriers and the first store of a tile."""
EPILOGUE_BYTES_PER_CLOCK = 48
"""Conversion and staging of D, per SM."""
OVERLAPPED_EPILOGUE = 0.35
"""What remains of it where D is stored during the next tile's main loop."""
CLUSTER_CLOCKS_PER_K_TILE = 16
"""What one k-tile loses by waiting for the peer CTA."""
EXPOSED_PROMOTION = {1: 1.0, 2: 0.45}
"""Share of the promotion that no other warpgroup's wgmma hides, by warpgroups."""
OVERLAPPED_PROMOTION = 0.15
"""The same where two accumulator sets take turns."""
MMA_M = 64
"""Rows of one wgmma."""
TCGEN05_M = 128
"""Rows of one tcgen05.mma in one CTA."""


@dataclass(frozen=True)
class Cost:
    """Predicted time of one call in seconds, and the terms it is made of."""

    total: float
    launch: float
    """Launch, ramp and drain."""
    issue: float
    """Compute of all waves if every wave were full to the last tile: Tensor Core and what holds
    it up (shared memory, promotion, ring latency, epilogue)."""
    wave: float
    """What the last, partly filled wave adds to that."""
    l2: float
    """All loads at the L2's bandwidth."""
    dram: float
    """All loads and stores that leave the L2, at the DRAM's bandwidth in use."""
    bound: str
    """Which of issue, l2 and dram takes longest in a full wave."""
    num_tiles: int
    """Tiles of D, each computed by one CTA."""
    waves: float
    """Tiles over CTAs that run at once."""


@dataclass(frozen=True)
class _Tile:
    """What one CTA does for one tile."""

    compute_s: float
    k_bytes_a: float
    """Bytes of A that it takes from the L2, multicast counted once per cluster."""
    k_bytes_b: float
    ring_bytes: float
    """Bytes of loads in flight."""


def estimate(problem: Gemm, config: Any, gpu: GpuModel) -> Cost:
    """Cost of `config` (any kernel's, with tile, stages, cluster and swizzle) for `problem`.

    A config may have split_k: CTAs that share the k-tiles of one tile.
    """
    split_k = int(getattr(config, "split_k", 1))
    ctas = config.cluster_m * config.cluster_n
    num_m = ceil(max(problem.m, 1) / (config.tile_m * config.cluster_m))
    num_n = ceil(max(problem.n, 1) / (config.tile_n * config.cluster_n))
    clusters = num_m * num_n * split_k
    slots = max(1, gpu.num_sms // ctas)
    tile = _tile(problem, config, gpu, split_k)
    l2_bytes = clusters * ctas * (tile.k_bytes_a + tile.k_bytes_b)
    dram_bytes = _dram_bytes(problem, config, gpu, num_m, num_n, slots)

    def wave(count: int) -> tuple[float, float, float]:
        """(compute, L2, DRAM) seconds of `count` clusters side by side."""
        sms = count * ctas
        l2_rate = min(
            L2_TOTAL_BYTES_PER_S * min(1.0, gpu.num_sms / FULL_HOPPER_SMS),
            sms * L2_BYTES_PER_CLOCK * CLOCK_HZ,
        )
        dram_rate = min(
            gpu.dram_gbytes_per_s * 1e9 * SUSTAINED_DRAM,
            sms * min(L2_BYTES_PER_CLOCK * CLOCK_HZ, tile.ring_bytes / DRAM_LATENCY_S),
        )
        share = count / clusters
        return tile.compute_s, share * l2_bytes / l2_rate, share * dram_bytes / dram_rate

    full, rest = divmod(clusters, slots)
    # (how many waves, seconds of one): all full waves are alike.
    parts = [(count, wave(size)) for count, size in ((full, slots), (1, rest)) if count and size]
    total = LAUNCH_S + sum(count * max(part) for count, part in parts)
    even = clusters / slots if full else 1.0
    names = ("issue", "l2", "dram")
    slowest = max(zip(parts[0][1], names, strict=True))[1]
    return Cost(
        total=total + _reduction_s(problem, split_k, gpu),
        launch=LAUNCH_S,
        issue=even * tile.compute_s,
        wave=max(0.0, full + bool(rest) - even) * tile.compute_s,
        l2=sum(count * part[1] for count, part in parts),
        dram=sum(count * part[2] for count, part in parts),
        bound=slowest,
        num_tiles=clusters * ctas,
        waves=clusters / slots,
    )


def _overlaps_epilogue(config: Any) -> bool:
    """Whether a tile of D is stored while the next one is computed."""
    return getattr(config, "store", "") == "deferred" or getattr(config, "accumulators", 1) > 1


def _tile(problem: Gemm, config: Any, gpu: GpuModel, split_k: int) -> _Tile:
    kind = dtype(problem.a)
    k_tiles = ceil(ceil(problem.k / config.tile_k) / split_k)
    k = k_tiles * config.tile_k
    rate = gpu.fp8_tflops if kind.bytes == 1 else gpu.bf16_tflops
    mma_s = 2 * config.tile_m * config.tile_n * k / (rate * 1e12 * SUSTAINED_MMA / gpu.num_sms)
    # An MMA reads its rows of A once and B once; TMA writes both once.
    blocks = config.tile_m / (MMA_M if hasattr(config, "warpgroups") else TCGEN05_M)
    row_bytes = k * kind.bytes
    read = (config.tile_m + blocks * config.tile_n) * row_bytes / SMEM_BYTES_PER_CLOCK
    box_row_bytes = config.swizzle_bytes or UNSWIZZLED_ROW_BYTES
    written = (config.tile_m + config.tile_n) * row_bytes / box_row_bytes
    smem_s = (read + written) / CLOCK_HZ
    stage_bytes = config.stage_bytes
    in_flight = max(config.stages - 1, 0.5)
    ring_s = k_tiles * DRAM_LATENCY_S / in_flight
    compute_s = max(mma_s, smem_s, ring_s)
    if config.cluster_m * config.cluster_n > 1:
        compute_s += k_tiles * CLUSTER_CLOCKS_PER_K_TILE / CLOCK_HZ
    if problem.accumulate == "promoted":
        additions = config.tile_m * config.tile_n * ceil(k / PROMOTION_K)
        exposed = EXPOSED_PROMOTION.get(getattr(config, "warpgroups", 2), 0.45)
        if getattr(config, "overlaps_promotion", False):
            exposed = OVERLAPPED_PROMOTION
        compute_s += exposed * additions / (WARP_FP32_PER_CLOCK * CLOCK_HZ)
    d_bytes = config.tile_m * config.tile_n * dtype(problem.d).bytes
    epilogue_s = (EPILOGUE_FIXED_CLOCKS + d_bytes / EPILOGUE_BYTES_PER_CLOCK) / CLOCK_HZ
    overlapped = _overlaps_epilogue(config)
    compute_s += epilogue_s * (OVERLAPPED_EPILOGUE if overlapped else 1.0)
    return _Tile(
        compute_s,
        config.tile_m * row_bytes / config.cluster_n,
        config.tile_n * row_bytes / config.cluster_m,
        config.stages * stage_bytes,
    )


def _dram_bytes(
    problem: Gemm, config: Any, gpu: GpuModel, num_m: int, num_n: int, slots: int
) -> float:
    """Bytes that leave the L2: A and B as often as they must be read again, and D.

    Tiles are walked in groups of rows; the A of a group stays in the L2 if half of it can hold
    that, and B is read once for each group unless it stays too.
    """
    a_bytes = problem.m * problem.k * dtype(problem.a).bytes
    b_bytes = problem.n * problem.k * dtype(problem.b).bytes
    d_bytes = problem.m * problem.n * dtype(problem.d).bytes
    room = gpu.l2_bytes / 2
    group = max(1, min(num_m, int(getattr(config, "raster_m_tiles", 8)) // config.cluster_m or 1))
    groups = ceil(num_m / group)
    group_bytes = min(1.0, group / num_m) * a_bytes
    b_reads = 1 if b_bytes <= room else groups
    a_reads = 1 if group_bytes <= room else ceil(num_n * group / slots)
    return float(a_reads * a_bytes + b_reads * b_bytes + d_bytes)


def _reduction_s(problem: Gemm, split_k: int, gpu: GpuModel) -> float:
    """Adding up the partial sums of split_k CTAs, which pass through the L2 in FP32."""
    if split_k == 1:
        return 0.0
    nbytes = 2 * split_k * problem.m * problem.n * 4
    return 1e-6 + nbytes / (L2_TOTAL_BYTES_PER_S * min(1.0, gpu.num_sms / FULL_HOPPER_SMS))

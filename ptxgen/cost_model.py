"""cost_model: how long a config takes on a GPU, by a few terms that can be read.

The model ranks configs; it does not predict times well enough to replace measurement. Tiles run in
waves, one per SM at a time. A full wave takes as long as the slowest of these: the Tensor Core
(which shared memory may hold up), the L2 and the DRAM; the last wave has fewer tiles, and so less
bandwidth in use and the same compute time.

Source of the constants: benchmarks/peers/h200.json (sustained wgmma and copy rates of an H200) and
DeepGEMM's heuristics for SM90 (bytes per clock of L2 and shared memory).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptxgen.arch import SECTOR_BYTES
from ptxgen.devices import GpuModel
from ptxgen.dtypes import dtype
from ptxgen.problem import PROMOTION_K, Gemm
from ptxgen.raster import CLUSTERS_AT_ONCE, FULL_HOPPER_SMS, RASTER_M_TILES, clusters_at_once

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

FITTED_ARCHS = ("sm_90a",)
"""Targets of the GPUs whose times the constants were fitted to."""
SUSTAINED_MMA = 0.865
"""Share of the published Tensor Core rate that remains at full power."""
SUSTAINED_DRAM = 0.93
"""Share of the published DRAM bandwidth that reading reaches."""
CLOCK_HZ = 1.6e9
"""SM clock at full power."""
STREAM_CLOCK_HZ = 1.95e9
STREAM_ROWS = 128
"""SM clock of so few rows that the Tensor Core mostly waits for weights. Measured on an H200."""
SMEM_BYTES_PER_CLOCK = 128
"""Shared memory of one SM, reads and writes together; TMA writes one box row per clock."""
UNSWIZZLED_ROW_BYTES = 16
"""Bytes of a box row without swizzle."""
L2_BYTES_PER_CLOCK = 64
"""What one SM takes from the L2."""
L2_TOTAL_BYTES_PER_S = 1.04e13
"""What all SMs of a full Hopper take from the L2 at full power's clock: a GEMM of 128x256 tiles
without multicast was measured at 9.0e12 with the Tensor Core as its limit."""
DRAM_LATENCY_S = 1.1e-6
"""From a load's issue to its bytes, with the memory busy."""
LAUNCH_S = 2.5e-6
"""Launch, the first load's latency and the end of the grid."""
K_TILE_S = {"fast": 75e-9, "promoted": 90e-9}
"""What a k-tile takes at the least: waiting for it, issuing its wgmma, handing it back. Measured on
an H200: 1x2112x7168 with tiles of 16 and 32 columns."""
WARP_FP32_PER_CLOCK = 128
"""FP32 additions of one SM per clock."""
EPILOGUE_FIXED_CLOCKS = 800
STREAM_EPILOGUE_CLOCKS = 600
"""Draining wgmma, barriers and the first store of a tile; and the same of few rows, whose ring
stays full meanwhile."""
EPILOGUE_BYTES_PER_CLOCK = 64
"""Conversion and staging of D, per SM."""
OVERLAPPED_EPILOGUE = 0.35
"""What remains of it where D is stored during the next tile's main loop."""
OVERLAPPED_ROWS = 0.6
DEFERRED_ROWS_S = 2e-6
"""The same where threads store rows of D; and what that takes more, as it delays the main loop and
hides nothing of the last tile. Measured on an H200: 4096x32768x640 (31 tiles for each CTA) 200.7 us
stored at once, 185.5 us deferred; 255x24575x1552 (2 tiles) 23.4 and 24.3 us."""
SPLIT_S = 0.6e-6
SPLIT_S_PER_ELEMENT = 0.28e-9
"""What CTAs that share the K of a tile take more, and for each element of the tile that they add
up; nothing hides it. Measured on an H200: tiles of 64x32 to 64x112 in 2 to 8 parts."""
SPLIT_WAVE_S = 2e-6
"""What each further wave of such tiles takes more, since their rings run empty in between."""
CLUSTER_CLOCKS_PER_K_TILE = 16
"""What one k-tile loses by waiting for the peer CTA."""
EXPOSED_PROMOTION = {1: 1.0, 2: 0.45, 3: 0.66}
"""Share of the promotion that no other warpgroup's wgmma hides, by warpgroups. Three: measured on
an H200, where a k-tile of 192x128 takes 0.64 us at full power."""
OVERLAPPED_PROMOTION = 0.5
"""The same where two accumulator sets take turns. Measured likewise: 0.44 us for 128x128."""
SCALES_OF_B = 1.5
"""Promotion with several scales of B in a tile over that with one. Measured likewise: a k-tile of
192x112, which crosses blocks of scales, takes as long as one of 192x128."""
TMA_BYTES_PER_S = 1.2e11
"""What TMA of one SM loads of rows that start at a multiple of a sector. Assumed: 64 bytes a clock;
no kernel was limited by it. A kernel that only loads would tell."""
TMA_SPLIT_BYTES_PER_S = 3.1e10
"""The same of rows that start within a sector, as every second one does if the pitch is an odd
multiple of 16 bytes: so much that both together take what was measured on an H200, 1.02 us for a
k-tile of 384 rows of 128 bytes (4096x7168x7184 in FP8, tile 128x256)."""
MULTICAST_S = 1.0e-6
"""What a kernel whose CTAs share tiles takes more: its clusters start and end together. Measured on
an H200: 17x4104x1040 and 1000x1000x1008."""
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
class Traits:
    """What the model looks at in configs, as arrays with one element for each of them."""

    tile_m: "Array"
    a_rows: "Array"
    """Rows of A that are loaded."""
    tile_n: "Array"
    tile_k: "Array"
    stages: "Array"
    stage_bytes: "Array"
    cluster_m: "Array"
    cluster_n: "Array"
    split_k: "Array"
    """CTAs that share the k-tiles of one tile."""
    box_row_bytes: "Array"
    """Bytes that TMA writes to shared memory at once."""
    mma_rows: "Array"
    """Rows of one MMA in one CTA, which read the tile of B once."""
    exposed_promotion: "Array"
    """Share of a plain promotion's time that no other warpgroup's MMA hides."""
    exposed_epilogue: "Array"
    """Share of the epilogue that no other tile's main loop hides."""
    start_s: "Array"
    """Seconds that a kernel takes more, however many tiles it has."""

    @classmethod
    def of(cls, configs: Sequence[Any]) -> "Traits":
        """Those of any kernel's configs, with tile, stages, cluster and swizzle."""
        import numpy as np  # most commands do without

        rows = [_traits(config) for config in configs]
        kinds = [np.int64] * (len(rows[0]) - 3) + [np.float64] * 3
        columns = zip(zip(*rows, strict=True), kinds, strict=True)
        return cls(*(np.array(column, kind) for column, kind in columns))


def _traits(config: Any) -> tuple[float, ...]:
    hopper = hasattr(config, "warpgroups")
    promotion = EXPOSED_PROMOTION[getattr(config, "warpgroups", 2)]
    if getattr(config, "overlaps_promotion", False):
        promotion = OVERLAPPED_PROMOTION
    if getattr(config, "scale_b_entries", 0) > 1:
        promotion *= SCALES_OF_B
    overlaps = getattr(config, "defers", False) or getattr(config, "accumulators", 1) > 1
    defers_rows = overlaps and getattr(config, "stores_rows", False)
    multicasts = hopper and config.cluster_m * config.cluster_n > 1
    split_k = getattr(config, "split_k", 1)
    added_up = SPLIT_S + SPLIT_S_PER_ELEMENT * config.tile_m * config.tile_n if split_k > 1 else 0.0
    return (
        config.tile_m, getattr(config, "a_rows", 0) or config.tile_m, config.tile_n,
        config.tile_k, config.stages, config.stage_bytes,
        config.cluster_m, config.cluster_n, split_k,
        config.swizzle_bytes or UNSWIZZLED_ROW_BYTES, MMA_M if hopper else TCGEN05_M,
        promotion,
        OVERLAPPED_ROWS if defers_rows else OVERLAPPED_EPILOGUE if overlaps else 1.0,
        MULTICAST_S * multicasts + DEFERRED_ROWS_S * defers_rows + added_up,
    )  # fmt: skip


def estimate(problem: Gemm, config: Any, gpu: GpuModel) -> Cost:
    """Cost of `config` (any kernel's, with tile, stages, cluster and swizzle) for `problem`."""
    return estimates(problem, Traits.of([config]), gpu)[0]


def estimates(problem: Gemm, traits: Traits, gpu: GpuModel) -> list[Cost]:
    """Cost of each config for `problem`."""
    import numpy as np

    t, ctas = traits, traits.cluster_m * traits.cluster_n
    clock_hz = _clock_hz(problem)
    num_m = _ceil(max(problem.m, 1), t.tile_m * t.cluster_m)
    num_n = _ceil(max(problem.n, 1), t.tile_n * t.cluster_n)
    clusters = num_m * num_n * t.split_k
    slots = np.maximum(1, gpu.num_sms // ctas)
    for size in CLUSTERS_AT_ONCE:
        at_once = clusters_at_once(gpu.num_sms, size) * size
        slots = np.where(t.split_k == size, np.minimum(slots, at_once), slots)
    k_tiles = _ceil(_ceil(problem.k, t.tile_k), t.split_k)
    compute_s = _tile_s(problem, t, gpu, k_tiles)
    row_bytes = k_tiles * t.tile_k * dtype(problem.a).bytes
    # What one CTA takes from the L2, multicast counted once per cluster.
    k_bytes = t.a_rows * row_bytes / t.cluster_n + t.tile_n * row_bytes / t.cluster_m
    l2_bytes = clusters * ctas * k_bytes
    dram_bytes = _dram_bytes(problem, t, gpu, num_m, num_n, slots)

    def wave(count: "Array") -> "Array":
        """Compute, L2 and DRAM seconds of `count` clusters side by side."""
        sms = np.maximum(count, 1) * ctas
        l2_rate = np.minimum(
            L2_TOTAL_BYTES_PER_S * min(1.0, gpu.num_sms / FULL_HOPPER_SMS) * clock_hz / CLOCK_HZ,
            sms * L2_BYTES_PER_CLOCK * clock_hz,
        )
        in_flight = np.minimum(
            L2_BYTES_PER_CLOCK * clock_hz, t.stages * t.stage_bytes / DRAM_LATENCY_S
        )
        dram_rate = np.minimum(gpu.dram_gbytes_per_s * 1e9 * SUSTAINED_DRAM, sms * in_flight)
        share = count / clusters
        return np.array([compute_s, share * l2_bytes / l2_rate, share * dram_bytes / dram_rate])

    full, rest = np.divmod(clusters, slots)
    parted = rest > 0
    waves, last = wave(slots), wave(rest)  # all full waves are alike
    launch_s = LAUNCH_S + t.start_s
    total = launch_s + (full * waves.max(axis=0) + parted * last.max(axis=0))
    even = np.where(full > 0, clusters / slots, 1.0)
    first = np.where(full > 0, waves, last)
    sums = full * waves + parted * last
    columns = (
        total + (t.split_k > 1) * np.maximum(0, full + parted - 1) * SPLIT_WAVE_S,
        even * compute_s,
        np.maximum(0.0, full + parted - even) * compute_s,
        sums[1],
        sums[2],
        first[_TERMS_FIRST].argmax(axis=0),
        launch_s,
        clusters * ctas,
        clusters / slots,
    )
    return [
        Cost(total, launch, issue, rest, l2, dram, _TERMS[_TERMS_FIRST[slowest]], tiles, waves)
        for total, issue, rest, l2, dram, slowest, launch, tiles, waves in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


_TERMS = ("issue", "l2", "dram")
_TERMS_FIRST = [1, 0, 2]
"""Which of them is named first if two take equally long."""


def _ceil(count: Any, size: Any) -> Any:
    """How many parts of `size` cover `count`."""
    return -(-count // size)


def _tile_s(problem: Gemm, t: Traits, gpu: GpuModel, k_tiles: "Array") -> "Array":
    """Seconds of one tile's main loop and of what is left of its epilogue."""
    import numpy as np

    kind, k, clock_hz = dtype(problem.a), k_tiles * t.tile_k, _clock_hz(problem)
    rate = gpu.fp8_tflops if kind.bytes == 1 else gpu.bf16_tflops
    mma_s = 2 * t.tile_m * t.tile_n * k / (rate * 1e12 * SUSTAINED_MMA / gpu.num_sms)
    # An MMA reads its rows of A once and B once; TMA writes both once.
    row_bytes = k * kind.bytes
    read = (t.tile_m + t.tile_m / t.mma_rows * t.tile_n) * row_bytes / SMEM_BYTES_PER_CLOCK
    written = (t.a_rows + t.tile_n) * row_bytes / t.box_row_bytes
    ring_s = k_tiles * DRAM_LATENCY_S / np.maximum(t.stages - 1, 0.5)
    compute_s = np.maximum(np.maximum(mma_s, (read + written) / clock_hz), ring_s)
    split_rows = [problem.stride(x) * kind.bits // 8 % SECTOR_BYTES != 0 for x in ("a", "b")]
    tma_s = sum(
        rows / sharing * row_bytes * _tma_s_per_byte(splits)
        for rows, sharing, splits in zip(
            (t.a_rows, t.tile_n), (t.cluster_n, t.cluster_m), split_rows, strict=True
        )
    )
    compute_s = np.maximum(np.maximum(compute_s, tma_s), k_tiles * K_TILE_S[problem.accumulate])
    waits = t.cluster_m * t.cluster_n > 1
    compute_s = compute_s + waits * (k_tiles * CLUSTER_CLOCKS_PER_K_TILE / clock_hz)
    if problem.accumulate == "promoted":
        additions = t.tile_m * t.tile_n * _ceil(k, PROMOTION_K)
        compute_s = compute_s + t.exposed_promotion * additions / (WARP_FP32_PER_CLOCK * clock_hz)
    d_bytes = t.tile_m * t.tile_n * dtype(problem.d).bytes
    fixed = STREAM_EPILOGUE_CLOCKS if problem.m <= STREAM_ROWS else EPILOGUE_FIXED_CLOCKS
    epilogue_s = (fixed + d_bytes / EPILOGUE_BYTES_PER_CLOCK) / clock_hz
    tile_s: Array = compute_s + epilogue_s * t.exposed_epilogue
    return tile_s


def _clock_hz(problem: Gemm) -> float:
    """The SM clock that power allows."""
    return STREAM_CLOCK_HZ if problem.m <= STREAM_ROWS else CLOCK_HZ


def _tma_s_per_byte(splits: bool) -> float:
    """splits: whether every second row starts within a sector."""
    if not splits:
        return 1 / TMA_BYTES_PER_S
    return (1 / TMA_BYTES_PER_S + 1 / TMA_SPLIT_BYTES_PER_S) / 2


def _dram_bytes(
    problem: Gemm, t: Traits, gpu: GpuModel, num_m: "Array", num_n: "Array", slots: "Array"
) -> "Array":
    """Bytes that leave the L2: A and B as often as they must be read again, and D.

    Tiles are walked in groups of rows; the A of a group stays in the L2 if half of it can hold
    that, and B is read once for each group unless it stays too.
    """
    import numpy as np

    a_bytes = problem.m * problem.k * dtype(problem.a).bytes
    b_bytes = problem.n * problem.k * dtype(problem.b).bytes
    d_bytes = problem.m * problem.n * dtype(problem.d).bytes
    room = gpu.l2_bytes / 2
    group = np.maximum(1, np.minimum(num_m, np.maximum(1, RASTER_M_TILES // t.cluster_m)))
    group_bytes = np.minimum(1.0, group / num_m) * a_bytes
    b_reads = 1 if b_bytes <= room else _ceil(num_m, group)
    a_reads = np.where(group_bytes <= room, 1, _ceil(num_n * group, slots))
    nbytes: Array = a_reads * float(a_bytes) + b_reads * float(b_bytes) + d_bytes
    return nbytes

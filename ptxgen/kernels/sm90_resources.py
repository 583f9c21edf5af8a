"""What a CTA of gemm_sm90 uses: the map of shared memory and the mbarriers."""

from ptxgen.kernels.sm90_config import PARTIALS_BARRIER_BYTES, Config
from ptxgen.kernels.wgmma_config import ring_map
from ptxgen.layout import SmemRegion
from ptxgen.plans import Barrier


def smem_map(config: Config) -> tuple[SmemRegion, ...]:
    """Regions of dynamic shared memory, in order."""
    barrier_bytes = PARTIALS_BARRIER_BYTES if config.split_k > 1 else 0
    return ring_map(config, (
        ("partials", config.partials_bytes, "partial sums of this CTA's K"),
        config.staging_region,
        (
            "vectors", config.warpgroups * config.vectors_bytes,
            "scales of rows, then of columns, per consumer warpgroup",
        ),
        ("scales", config.scales_bytes * config.stages, "block scales, A then B, per stage"),
        *config.ring_regions,
        ("partials_full", barrier_bytes, "mbarriers: partial sums written; partial sums read"),
    ))  # fmt: skip


def barriers(config: Config) -> tuple[Barrier, ...]:
    """The mbarriers: who arrives, who waits."""
    ctas = " of every CTA of the cluster" if config.multicasts else ""
    partials = [
        Barrier(
            name, 1, 4 * config.warpgroups * config.split_k, 0,
            f"one lane of every consumer warp of every CTA of the cluster, having {done} them",
            "all consumer threads",
        )
        for name, done in (("partials_full", "written"), ("partials_empty", "read"))
    ]  # fmt: skip
    return (
        Barrier(
            "full", config.stages, config.full_arrivals,
            config.tx_bytes,
            "the producer, by arrive.expect_tx; TMA counts the bytes down"
            + ("; the mover's 32 lanes, when their copies land" if config.block_scaled else ""),
            "all consumer threads",
        ),
        Barrier(
            "empty", config.stages, empty_arrivals(config), 0,
            f"one lane of every consumer warp{ctas}",
            "the producer and the mover" if config.block_scaled else "the producer",
        ),
        *(partials if config.split_k > 1 else ()),
    )  # fmt: skip


def empty_arrivals(config: Config) -> int:
    """Arrivals that hand a stage back: one per consumer warp of every CTA that reads it."""
    return 4 * config.warpgroups * config.cluster_m * config.cluster_n

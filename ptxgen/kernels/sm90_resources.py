"""What a CTA of gemm_sm90 uses: the map of shared memory and the mbarriers."""

from ptxgen.kernels.sm90_config import PARTIALS_BARRIER_BYTES, Config
from ptxgen.layout import TILE_ALIGNMENT, DStaging, SmemRegion, align_up
from ptxgen.plans import Barrier


def smem_map(config: Config) -> tuple[SmemRegion, ...]:
    """Regions of dynamic shared memory, in order."""
    a_bytes = align_up(config.a_tile.nbytes, TILE_ALIGNMENT)
    regions = []
    for stage in range(config.stages):
        offset = stage * config.stage_bytes
        regions.append(SmemRegion(f"a[{stage}]", offset, config.a_tile.nbytes, "A tile"))
        regions.append(SmemRegion(f"b[{stage}]", offset + a_bytes, config.b_tile.nbytes, "B tile"))
    offset = config.stages * config.stage_bytes
    if config.partials_bytes:
        regions.append(
            SmemRegion("partials", offset, config.partials_bytes, "partial sums of this CTA's K")
        )
        offset += config.partials_bytes
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
    if config.partials_bytes:
        offset += 8 * config.stages
        regions.append(
            SmemRegion("partials_full", offset, PARTIALS_BARRIER_BYTES,
                       "mbarriers: partial sums written; partial sums read")
        )  # fmt: skip
    return tuple(regions)


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
            config.a_tile.nbytes + config.b_tile.nbytes,
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

"""What a CTA of grouped_sm90 uses: the map of shared memory and the mbarriers."""

from ptxgen.kernels.grouped_config import WORK_BYTES, WORK_SLOTS, Config
from ptxgen.kernels.wgmma_config import ring_map
from ptxgen.layout import SmemRegion
from ptxgen.plans import Barrier


def smem_map(config: Config) -> tuple[SmemRegion, ...]:
    """Regions of dynamic shared memory, in order."""
    return ring_map(config, (
        config.staging_region,
        ("scales", config.scales_bytes * config.stages,
         "block scales per stage, of wgmma's rows, then of its columns"),
        ("work", WORK_BYTES * WORK_SLOTS, "descriptions of the next tiles"),
        *config.ring_regions,
        ("landed", 8 * config.stages * config.trims_k, "mbarriers: stage filled, to be trimmed"),
        ("staged", 8 * config.hands_over, "mbarrier: tile of D staged"),
        ("staging_free", 8 * config.hands_over, "mbarrier: staged tile of D read"),
        ("work_full", 8 * WORK_SLOTS, "mbarriers: description written"),
        ("work_empty", 8 * WORK_SLOTS, "mbarriers: description read"),
    ))  # fmt: skip


def barriers(config: Config) -> tuple[Barrier, ...]:
    """The mbarriers: who arrives, who waits."""
    ctas = " of every CTA of the cluster" if config.cluster_ctas > 1 else ""
    mover = config.block_scaled
    landed = Barrier(
        "landed", config.stages, 1, config.a_tile.nbytes + config.b_tile.nbytes,
        "the producer in place of full, for a k-tile that the group has in part; TMA counts down",
        "the trimmer, which then arrives at full",
    )  # fmt: skip
    handed = (
        Barrier(
            "staged", 1, 4 * config.warpgroups, 0,
            "one lane of every consumer warp, when its part of the tile of D lies staged",
            "the trimmer, which lets TMA add it",
        ),
        Barrier(
            "staging_free", 1, 1, 0, "the trimmer, when TMA has read the tile",
            "all consumer threads, before they stage the next one",
        ),
    )  # fmt: skip
    return (
        Barrier(
            "full", config.stages, config.full_arrivals,
            config.a_tile.nbytes + config.b_tile.nbytes,
            "the producer, by arrive.expect_tx of what the tile's rows take (at most these bytes); "
            "TMA counts them down" + ("; the mover's 32 lanes, when their copies land" * mover),
            "all consumer threads",
        ),
        Barrier(
            "empty", config.stages, 4 * config.warpgroups * config.cluster_ctas, 0,
            f"one lane of every consumer warp{ctas}",
            "the producer and the mover" if mover else "the producer",
        ),
        *((landed,) if config.trims_k else ()),
        *(handed if config.hands_over else ()),
        Barrier(
            "work_full", WORK_SLOTS, 1, 0, "lane 0 of the scheduler, after writing a description",
            f"producer, {'mover, ' * mover}{'trimmer, ' * config.trims_k}consumers",
        ),
        Barrier(
            "work_empty", WORK_SLOTS, config.work_readers, 0,
            "the producer, one lane of every other warp that reads it", "the scheduler",
        ),
    )  # fmt: skip

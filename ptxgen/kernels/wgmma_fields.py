"""What the templates of all kernels on wgmma print of a CTA's ring, roles and ranks."""

from ptxgen.kernels.wgmma_config import WgmmaConfig

WARPS_COLUMNS = 7
"""Width of what the header's table of warps says before the roles of consumers."""


def ring_fields(config: WgmmaConfig, regions: dict[str, int]) -> dict[str, object]:
    """The ring of stages and its barriers. regions: region of shared memory -> its offset."""
    return {
        "stages": config.stages,
        "stage_bytes": config.stage_bytes,
        "ring_bytes": config.stages * config.stage_bytes,
        "stage_units": config.stage_bytes >> 4,
        "stage_barriers": [{"offset": 8 * i} for i in range(config.stages)],
        "full_arrivals": config.full_arrivals,
        "full_offset": regions["full"],
        "empty_offset": regions["empty"],
        "empty_from_full": regions["empty"] - regions["full"],
        "b_offset": regions["b[0]"],
    }


def consumer_fields(config: WgmmaConfig) -> list[dict[str, object]]:
    """Each consumer warpgroup: its warps, and its rows of wgmma's M in the tile."""
    rows = config.mma_rows // config.warpgroups
    return [
        {
            "index": i,
            "warps": f"{4 * i + 4}..{4 * i + 7}".ljust(WARPS_COLUMNS),
            "rows": f"{i * rows}..{(i + 1) * rows - 1}",
        }
        for i in range(config.warpgroups)
    ]


def rank_moves(config: WgmmaConfig) -> dict[str, str]:
    """What makes a CTA's rank along M and along N, of the rank in its cluster of at most two."""
    return {
        axis: f"mov.u32 %cluster_{axis}_rank, {'%cluster_rank' if many else '0'}"
        for axis, many in (("m", config.cluster_m > 1), ("n", config.cluster_n > 1))
    }

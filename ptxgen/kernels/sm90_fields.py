"""What the template of gemm_sm90 and its parts print beyond the launch."""

from ptxgen.dtypes import dtype
from ptxgen.kernels.sm90_config import GROUP_PARTIAL_BYTES, Config
from ptxgen.kernels.sm90_epilogue_fields import epilogue_fields, groups_of, shares_of, spans_of
from ptxgen.kernels.sm90_part_fields import block_scale_fields, split_fields, vector_fields
from ptxgen.kernels.sm90_resources import empty_arrivals, smem_map
from ptxgen.kernels.wgmma_config import WARPGROUP_THREADS
from ptxgen.kernels.wgmma_fields import consumer_fields, rank_moves, ring_fields
from ptxgen.layout import CHUNK_BYTES, MMA_M
from ptxgen.plans import product_text
from ptxgen.raster import raster_fields, raster_height


def fields(config: Config) -> dict[str, object]:
    """Fields of the plan, by name."""
    a_tile, b_tile = config.a_tile, config.b_tile
    regions = {r.name: r.offset for r in smem_map(config)}
    pad_offset = regions.get("pad[0]", 0)
    promoted = config.accumulate == "promoted"
    moves_registers = config.warpgroups > 1
    blocks = range(config.blocks_per_warpgroup)
    results = [f"%sum{i}_" if promoted else f"%acc{i}_" for i in blocks]
    parts = [
        {
            "index": i,
            "rows": i * MMA_M,
            "partial_offset": i * config.tile_n // 8 * GROUP_PARTIAL_BYTES,
            "accumulator": f"%acc{i if config.num_accumulators > 1 else 0}_",
            "result": result,
            "scale_offset": 4 * MMA_M * i,
            "second_scale_offset": 4 * (MMA_M * i + 8),
            "groups": groups_of(config, i, result),
            "spans": spans_of(config, result),
            "shares": shares_of(config, i),
        }
        for i, result in zip(blocks, results, strict=True)
    ]
    return {
        "config": config,
        "what": product_text(config.scale),
        "launch_text": _launch_text(config),
        "a": a_tile,
        "b": b_tile,
        **raster_fields(raster_height(config.cluster_m)),
        "cta_threads": config.cta_threads,
        "cluster_ctas": config.cluster_ctas,
        "cluster_mask": (1 << config.cluster_m * config.cluster_n) - 1,
        "clustered": config.cluster_ctas > 1,
        "and_peers": " and the other CTAs of the cluster" if config.cluster_ctas > 1 else "",
        "producer_registers": config.producer_registers,
        "consumer_registers": config.consumer_registers,
        "dependent": config.dependent_launch,
        "moves_registers": moves_registers,
        "idle_text": f"idle{' (they give their registers to the consumers)' * moves_registers}",
        "empty_arrivals": empty_arrivals(config),
        "multicasts": config.multicasts,
        "points_ahead": config.points_ahead,
        "loads_first": config.loads_first,
        "second_fill": {"stage": 1 % config.stages, "parity": int(config.stages > 1)},
        **ring_fields(config, regions),
        **split_fields(config, regions),
        **vector_fields(config, regions),
        "tx_bytes": config.tx_bytes,
        "clears_pad": config.pad_bytes > 0,
        "clear_step": CHUNK_BYTES * WARPGROUP_THREADS,
        "cleared": {"offset": pad_offset, "end": pad_offset + config.pad_bytes},
        "warpgroup_rows": config.tile_m // config.warpgroups,
        "warpgroup_a_bytes": config.blocks_per_warpgroup * a_tile.mma_m_bytes,
        "a_descriptor": hex(config.a_descriptor.encode()),
        "b_descriptor": hex(b_tile.descriptor.encode()),
        "mma": f"m64n{config.tile_n}k{a_tile.mma_k}.f32.{config.a}.{config.b}",
        "mma_flags": _mma_flags(config),
        "moves_scales": config.block_scaled,
        **block_scale_fields(config, regions),
        "k_steps": [
            {
                "index": step,
                "a_units": [
                    (step * a_tile.k_step_bytes + i * a_tile.mma_m_bytes) >> 4 for i in blocks
                ],
                "b_units": step * b_tile.k_step_bytes >> 4,
                "accumulate": "1" if step else "%accumulate",
                "fresh": int(step > 0),
            }
            for step in range(config.tile_k // a_tile.mma_k)
        ],
        "block_registers": config.registers_per_block,
        "blocks": parts,
        "first_block": parts[0],
        "other_blocks": parts[1:],
        "register_indices": list(range(config.registers_per_block)),
        "consumers": consumer_fields(config),
        "rank_moves": rank_moves(config),
        "accumulators": [f"%acc{i}_" for i in range(config.num_accumulators)],
        "sums": [f"%sum{i}_" for i in blocks] if promoted else [],
        "promotion_tiles": config.promotion_tiles,
        **epilogue_fields(config, results, regions.get("d", 0)),
    }  # fmt: skip


def _launch_text(config: Config) -> str:
    """How CTAs are launched, for the header."""
    cluster = f"{config.cluster_m} x {config.cluster_n} x {config.split_k}"
    early = "; one may start before the kernel before has ended" * config.dependent_launch
    return (
        f"persistent CTAs, {config.ctas_per_sm} on an SM, in clusters of {cluster} (m, n, parts "
        f"of k){early}"
    )


def _mma_flags(config: Config) -> str:
    """Trailing immediates of wgmma: input signs, and for 16-bit types the transpose bits."""
    signs = "1, 1"
    if dtype(config.a).bytes != 2:
        return signs
    return f"{signs}, {int(not config.a_tile.k_major)}, {int(not config.b_tile.k_major)}"

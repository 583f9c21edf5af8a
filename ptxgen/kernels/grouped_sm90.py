"""grouped_sm90: many GEMMs of one shape on Hopper, whose rows are counted on the device.

Pairs with templates/grouped_sm90.ptx.j2. One warp walks the groups and describes tiles, one loads
by TMA, one moves block scales; one to three consumer warpgroups run wgmma and store D. The operands
may be swapped: then B takes the M of wgmma and the few rows of A its N. CTAs are persistent.
"""

from ptxgen.config_rules import counted_sms
from ptxgen.dtypes import dtype
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels.grouped_choice import configs, default_config
from ptxgen.kernels.grouped_config import NAME, SWIZZLE_BYTES, TOKEN_ROWS, Config
from ptxgen.kernels.grouped_fields import d_staging, fields
from ptxgen.kernels.grouped_launch import grouped_launch
from ptxgen.kernels.grouped_operands import as_groups, check_operands, check_serves
from ptxgen.kernels.grouped_resources import barriers, smem_map
from ptxgen.kernels.wgmma_config import NUM_SMS, TARGET, TARGETS, UNIT, VERSION
from ptxgen.launch import Launch, Param
from ptxgen.operand_maps import d_map_params, tensor_map
from ptxgen.plans import Plan, parts_text
from ptxgen.problem import Gemm

__all__ = [
    "NAME", "NUM_SMS", "TARGET", "TARGETS", "UNIT", "Config", "check_operands", "configs",
    "default_config", "plan",
]  # fmt: skip

LATER_PART = 0xFFFFFFFF
"""What a description says of a part of a tile that is not its first, in place of how many parts of
the tile follow."""


def plan(problem: GroupedGemm | Gemm, config: Config | None = None, num_sms: int = NUM_SMS) -> Plan:
    """Everything that the template prints and a device needs. A dense problem is one group.

    num_sms: how many persistent CTAs may run at once (SMs of the device).

    Raises: ConfigError if the config is illegal or does not serve the problem, or
    num_sms is no number of SMs.
    """
    problem = as_groups(problem)
    config = config or default_config(problem)
    num_sms = counted_sms(num_sms)
    config.check()
    check_serves(problem, config)
    parts = _parts(config)
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=TARGET,
        version=VERSION,
        launch=_launch(problem, config, num_sms),
        smem_map=smem_map(config),
        barriers=barriers(config),
        parts=parts,
        fields={
            **fields(config),
            "eighth_word": "%following_parts" if config.stream_k else "%k_tail",
            "later_part": hex(LATER_PART),
            "parts_text": parts_text(parts, _used(config)),
        },
    )


def _used(config: Config) -> dict[str, bool]:
    """Whether the text has a main loop and its promotion: each width of wgmma takes one of them."""
    ahead = {n for n in config.mma_columns if config.asks_ahead(n)}
    overlapped = {n for n in config.mma_columns if config.overlaps_promotion(n)} - ahead
    others = len(config.mma_columns) > len(ahead | overlapped)
    return {
        "mainloop": others,
        "overlapped": bool(overlapped),
        "ahead": bool(ahead),
        "promotion": bool(overlapped),
        "prepared": bool(ahead) or (others and config.accumulate == "promoted"),
    }


def _parts(config: Config) -> dict[str, str]:
    promotion = (
        "promotion_plain" if not config.block_scaled
        else "promotion_group" if config.scale == "group"
        else "promotion_block_swapped" if config.swap_ab
        else "promotion_block"
    )  # fmt: skip
    return {
        "start": (
            "start_multicast" if config.cluster_ctas > 1
            else "start_all" if config.clears_a
            else "start_cta"
        ),
        "scheduler": "scheduler_rows" if config.index == "rows" else "scheduler_grouped",
        "groups": {
            "masked": "groups_masked", "contiguous": "groups_offsets",
            "kgrouped": "groups_kgrouped", "batched": "groups_batched",
        }[config.mode],
        "mainloop": (
            "mainloop_prepared" if config.promotion_tiles == 1
            else "mainloop_promoted" if config.accumulate == "promoted"
            else "mainloop_pipelined" if config.stages > 1
            else "mainloop_drained"
        ),
        "overlapped": "mainloop_overlapped",
        "ahead": "mainloop_ahead",
        "promotion": promotion,
        "prepared": (
            "promotion_block_swapped_prepared" if config.prepares_factors else promotion
        ),
        "scale": f"scale_grouped_{'none' if config.block_scaled else config.scale}",
        "epilogue": (
            "epilogue_grouped_global" if config.store == "global"
            else "epilogue_swapped" if config.swap_ab
            else "epilogue_added" if config.hands_over
            else "epilogue_grouped"
        ),
    }  # fmt: skip


def _launch(problem: GroupedGemm, config: Config, num_sms: int) -> Launch:
    swizzle = f"{SWIZZLE_BYTES}B"
    maps = [
        Param(f"a_map{i}", "tensor_map", tensor_map(problem, "a", (config.tile_k, rows), swizzle))
        for i, rows in enumerate(config.token_boxes)
    ]
    maps.append(Param("b_map", "tensor_map", tensor_map(problem, "b", config.b_tile.box, swizzle)))
    d = dtype(problem.d)
    if config.store != "global" and config.swap_ab:
        box = (SWIZZLE_BYTES // d.bytes, TOKEN_ROWS)
        maps.append(Param("d_map", "tensor_map", tensor_map(problem, "d", box, swizzle)))
    elif config.store != "global":
        maps += d_map_params(problem, d_staging(config))
    return grouped_launch(problem, config, num_sms, maps, config.cta_threads, config.smem_bytes)

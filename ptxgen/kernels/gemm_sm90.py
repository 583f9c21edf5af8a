"""gemm_sm90: dense GEMM on Hopper's wgmma, with TMA and a ring of mbarriers.

Pairs with templates/gemm_sm90.ptx.j2. One producer warp fills a ring of stages by TMA; one to
three consumer warpgroups run wgmma on them and store D. CTAs are persistent.
"""

from ptxgen.arch import ONE_CTA_BYTES
from ptxgen.config_rules import counted_sms
from ptxgen.dtypes import dtype
from ptxgen.kernels.sm90_choice import configs, default_config
from ptxgen.kernels.sm90_config import NAME, Config
from ptxgen.kernels.sm90_fields import fields
from ptxgen.kernels.sm90_operands import (
    check_operands,
    check_serves,
)
from ptxgen.kernels.sm90_resources import barriers, smem_map
from ptxgen.kernels.sm90_rules import SWIZZLES
from ptxgen.kernels.wgmma_config import NUM_SMS, TARGET, TARGETS, UNIT, VERSION
from ptxgen.launch import Launch, Param
from ptxgen.layout import WARP_ROWS, DStaging
from ptxgen.operand_buffers import operand_buffers
from ptxgen.operand_maps import d_map_params, tensor_map
from ptxgen.plans import Plan, parts_text
from ptxgen.problem import Gemm
from ptxgen.raster import clusters_at_once, raster_height, raster_params

__all__ = [
    "NAME", "NUM_SMS", "SWIZZLES", "TARGET", "TARGETS", "UNIT", "Config", "check_operands",
    "configs", "default_config", "plan",
]  # fmt: skip


def plan(problem: Gemm, config: Config | None = None, num_sms: int = NUM_SMS) -> Plan:
    """Everything that the template prints and a device needs.

    num_sms: SMs of the device, each of which runs `ctas_per_sm` CTAs.

    Raises: ConfigError if the config is illegal or does not serve the problem, or
    num_sms is no number of SMs.
    """
    config = config or default_config(problem)
    num_sms = counted_sms(num_sms)
    config.check()
    check_serves(problem, config)
    launch = _launch(problem, config, num_sms)
    parts = _parts(config)
    used = {"promotion": config.accumulate == "promoted", "mover": config.block_scaled}
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=TARGET,
        version=VERSION,
        launch=launch,
        smem_map=smem_map(config),
        barriers=barriers(config),
        parts=parts,
        fields={**fields(config), "parts_text": parts_text(parts, used)},
    )


def _parts(config: Config) -> dict[str, str]:
    """Which part plays which role."""
    return {
        "start": (
            "start_split" if config.split_k > 1
            else "start_multicast" if config.multicasts
            else "start_cta"
        ),
        "scheduler": "scheduler_static",
        "producer": "producer_tma",
        "mainloop": (
            "mainloop_ahead" if config.asks_ahead
            else "mainloop_overlapped" if config.overlaps_promotion
            else "mainloop_prepared" if config.warpgroups == 3 and config.promotion_tiles == 1
            else "mainloop_promoted" if config.accumulate == "promoted"
            else "mainloop_pipelined" if config.stages > 1
            else "mainloop_drained"
        ),
        "promotion": (
            "promotion_group" if config.scale == "group"
            else "promotion_plain" if config.scale != "block"
            else "promotion_block"
        ),
        "mover": "mover_scales" if config.scale_format == "f32" else "mover_scales_ue8m0",
        "epilogue": (
            "epilogue_split" if config.split_k > 1
            else "epilogue_rows" if config.stores_rows
            else "epilogue_tma" if config.stores_by_tma
            else "epilogue_global"
        ),
    }  # fmt: skip


def _launch(problem: Gemm, config: Config, num_sms: int) -> Launch:
    num_m_tiles = -(-problem.m // (config.tile_m * config.cluster_m))
    num_n_tiles = -(-problem.n // (config.tile_n * config.cluster_n))
    num_tiles = num_m_tiles * num_n_tiles
    at_once = clusters_at_once(num_sms, config.cluster_ctas) * config.ctas_per_sm
    clusters = max(1, min(num_tiles, at_once))
    swizzle = f"{config.swizzle_bytes}B" if config.swizzle_bytes else "none"
    staging = DStaging(dtype(config.d), config.d_tile_n, WARP_ROWS)
    params = [
        Param("a_map", "tensor_map", tensor_map(problem, "a", config.a_tile.box, swizzle)),
        Param("b_map", "tensor_map", tensor_map(problem, "b", config.b_tile.box, swizzle)),
    ]
    if config.stores_by_tma:
        params += d_map_params(problem, staging)
    else:
        params.append(Param("d_pointer", "pointer", "d"))
        params.append(Param("d_stride_bytes", "u64", problem.stride("d") * dtype(problem.d).bytes))
    if config.scale != "none":
        for name in ("scale_a", "scale_b"):
            params.append(Param(name, "pointer", name))
            if config.block_scaled:
                row, k = getattr(problem, f"{name}_strides")
                params.append(Param(f"{name}_row_bytes", "u32", problem.scale_bytes * row))
                params += _k_step_params(problem, name, k)
    params += [
        *_epilogue_params(problem),
        Param("m", "u32", problem.m),
        Param("n", "u32", problem.n),
        Param("num_k_tiles", "u32", -(-problem.k // config.tile_k)),
        *(
            [Param("k_tiles_per_part", "u32", config.tiles_per_part(problem.k))]
            if config.split_k > 1
            else []
        ),
        Param("num_m_tiles", "u32", num_m_tiles),
        Param("num_n_tiles", "u32", num_n_tiles),
        Param("num_tiles", "u32", num_tiles),
        *raster_params(num_m_tiles, num_n_tiles, raster_height(config.cluster_m)),
        Param("alpha", "f32", problem.alpha),
    ]
    # CTAs of a dependent launch come early, two to an SM where two fit, and others stay without one
    smem_bytes = max(config.smem_bytes, ONE_CTA_BYTES if config.dependent_launch else 0)
    return Launch(
        entry=str(config),
        grid_ctas=(clusters * config.cluster_ctas, 1, 1),
        cta_threads=(config.cta_threads, 1, 1),
        cluster_ctas=(config.cluster_ctas, 1, 1),
        dynamic_smem_bytes=smem_bytes,
        params=tuple(params),
        buffers=operand_buffers(problem),
        overlaps_previous=config.dependent_launch,
    )


def _k_step_params(problem: Gemm, name: str, stride: int) -> list[Param]:
    """How far the scales of one block of K lie from those of the next; of bytes, also how far those
    of four blocks lie from those of the next four, which are in other words if they are packed."""
    if problem.scale_format == "f32":
        return [Param(f"{name}_k_bytes", "u32", 4 * stride)]
    packed = problem.scale_format == "ue8m0x4"
    return [
        Param(f"{name}_k_bytes", "u32", 1 if packed else stride),
        Param(f"{name}_k4_bytes", "u32", 4 * stride),
    ]


def _epilogue_params(problem: Gemm) -> list[Param]:
    """The parameters of what follows the sums."""
    epilogue, params = problem.epilogue, []
    if epilogue.c != "none":
        stride_bytes = problem.stride("c") * dtype(epilogue.c).bytes
        params += [
            Param("c", "pointer", "c"),
            Param("c_stride_bytes", "u64", stride_bytes),
            Param("beta", "f32", epilogue.beta),
        ]
    if epilogue.bias != "none":
        params.append(Param("bias", "pointer", "bias"))
    if epilogue.amax:
        params.append(Param("amax", "pointer", "amax"))
    if epilogue.d_scale != "none":
        params.append(Param("d_scale", "pointer", "d_scale"))
    if epilogue.d_scale == "group":
        row, block = problem.d_scale_strides
        params.append(Param("d_scale_row_bytes", "u64", 4 * row))
        params.append(Param("d_scale_block_bytes", "u64", 4 * block))
    return params

"""Which configs of gemm_sm90 are legal, whatever the problem."""

from typing import TYPE_CHECKING

from ptxgen.config_rules import check_smem, check_tile_k, check_values
from ptxgen.dtypes import dtype
from ptxgen.epilogue import D_SCALE_BLOCK, GATE_COLUMNS
from ptxgen.errors import ConfigError
from ptxgen.kernels.sm90_registers import needed_registers
from ptxgen.kernels.wgmma_config import MAX_STAGES, TARGET
from ptxgen.layout import CHUNK_BYTES, MMA_M, WARP_LANES, align_up
from ptxgen.problem import PROMOTION_K

if TYPE_CHECKING:
    from ptxgen.kernels.sm90_config import Config

SWIZZLES = (0, 32, 64, 128)
STORES = ("tma", "deferred", "global", "deferred_global")
"""How D is stored: by TMA or by threads, at once or during the next tile's main loop."""
MOST_UE8M0_ROWS = 128
"""Rows of a tile whose UE8M0 scales a warp of few registers converts without a spill.
Measured: ptxas 13.0 and 13.5."""
MOST_GROUP_COLUMNS = 96
"""Columns of a tile of a cluster whose scales, one for each, a warp of few registers copies without
a spill, where they are not copied by 32 lanes throughout. Measured: ptxas 13.0."""
MOST_SHARED_COLUMNS = 64
"""Columns of a tile of 64 rows that ptxas holds without a spill in half of an SM's registers.
Measured: ptxas 13.0 and 13.5."""


def check_fields(config: "Config") -> None:
    """Refuse fields outside their range. Raises: ConfigError."""
    allowed = {
        "tile_m": (64, 128, 192, 256),
        "tile_n": range(8, 257, 8),
        "stages": range(1, MAX_STAGES + 1),
        "cluster_m": (1, 2),
        "cluster_n": (1, 2),
        "split_k": (1, 2, 4, 8),
        "warpgroups": (1, 2, 3),
        "swizzle_bytes": SWIZZLES,
        "store": STORES,
        "a_rows": (0, 8, 16, 32),
        "ctas_per_sm": (1, 2),
    }
    check_values(config, allowed)


def check(config: "Config") -> None:
    """Refuse what cannot work.

    Raises: ConfigError with rule, value, limit and what to try.
    """
    check_fields(config)
    _check_ctas(config)
    config.check_blocks("tile_m")
    check_tile_k(config)
    _check_tiles(config)
    config.check_block_scales()
    _check_epilogue(config)
    _check_store(config)
    config.check_registers(needed_registers(config), config.consumer_registers, "tile_n")
    check_smem(config, TARGET, limit=config.smem_limit)


def _check_ctas(config: "Config") -> None:
    """What CTAs share: a cluster or an SM."""
    if config.cluster_m * config.cluster_n > 2:
        raise ConfigError(
            f"cluster {config.cluster_m}x{config.cluster_n} must have at most 2 CTAs; try 2x1"
        )
    if config.split_k > 1 and (config.multicasts or config.store != "global"):
        raise ConfigError(
            f"split_k={config.split_k} uses the cluster for K and stores with st.global: "
            f"it needs cluster 1x1 and store=global, got {config.cluster_m}x{config.cluster_n} and "
            f"store={config.store}; try split_k=1"
        )
    if config.ctas_per_sm > 1 and not config.can_share_sms:
        raise ConfigError(
            f"ctas_per_sm={config.ctas_per_sm} needs one consumer warpgroup with tile_m={MMA_M}, "
            f"tile_n<={MOST_SHARED_COLUMNS}, no cluster, no dependent launch (which gives a "
            f"CTA an SM), and no epilogue but scales, got warpgroups={config.warpgroups}, tile "
            f"{config.tile_m}x{config.tile_n}, clusters of {config.cluster_ctas}, dependent_launch="
            f"{config.dependent_launch}, epilogue={config.has_epilogue}; try ctas_per_sm=1"
        )


def _check_tiles(config: "Config") -> None:
    """What warps and the CTAs of a cluster can take of a tile."""
    if config.a_rows and not config.can_load_few_rows:
        raise ConfigError(
            f"a_rows={config.a_rows} needs tile_m={MMA_M}, a cluster that shares nothing, a "
            f"K-major A and swizzle=128, got tile_m={config.tile_m}, cluster {config.cluster_m}x"
            f"{config.cluster_n}, layout={config.layout} and swizzle={config.swizzle_bytes}; try "
            "a_rows=0"
        )
    if config.warpgroups == 3 and config.promotion_tiles != 1:
        raise ConfigError(
            f"warpgroups=3 is for sums that are promoted at each k-tile of {PROMOTION_K}, got "
            f"accumulate={config.accumulate} and tile_k={config.tile_k}; try warpgroups=2 with "
            "tile_m=128"
        )
    for name, tile in (("tile_m", config.a_tile), ("tile_n", config.b_tile)):
        if tile.slices > 1 and tile.box[1] * tile.slices % (8 * tile.slices):
            raise ConfigError(
                f"{name}={tile.rows} must be a multiple of {8 * tile.slices}, since the "
                f"{tile.slices} CTAs of the cluster each load a part of whole 8-row groups; "
                f"try {name}={align_up(tile.rows, 8 * tile.slices)}"
            )
    if config.scale_format != "f32" and config.tile_m > MOST_UE8M0_ROWS and config.warpgroups > 1:
        raise ConfigError(
            f"tile_m={config.tile_m} with scale_format={config.scale_format} must be at most "
            f"{MOST_UE8M0_ROWS}: the warp that converts scales keeps one of each in registers, "
            f"of which it has {config.producer_registers}; try tile_m={MOST_UE8M0_ROWS}"
        )
    if (
        config.scale == "group" and config.multicasts and config.warpgroups > 1
        and config.tile_n > MOST_GROUP_COLUMNS and config.tile_n % WARP_LANES
    ):  # fmt: skip
        raise ConfigError(
            f"tile_n={config.tile_n} with scale=group in a cluster must be at most "
            f"{MOST_GROUP_COLUMNS} or a multiple of {WARP_LANES}: the warp that copies scales has "
            f"{config.producer_registers} registers; try "
            f"tile_n={align_up(config.tile_n, WARP_LANES)}"
        )


def _check_store(config: "Config") -> None:
    """What the ways of storing D need."""
    if config.defers and (
        dtype(config.d).bytes != 2 or config.stages < 2 or config.accumulate != "fast"
    ):
        raise ConfigError(
            f"store={config.store} holds a rounded tile in registers during the next main loop: "
            f"it needs a 16-bit d, stages>=2 and accumulate=fast, got d={config.d}, "
            f"stages={config.stages}, accumulate={config.accumulate}; try "
            f"store={'tma' if config.stores_by_tma else 'global'}"
        )
    if config.store == "deferred_global" and config.has_epilogue:
        raise ConfigError(
            "store=deferred_global leaves no registers for C, bias, an activation, amax or a "
            f"scale of D, got c={config.c}, bias={config.bias}, activation={config.activation}, "
            f"amax={config.amax}, d_scale={config.d_scale}; try store=global"
        )
    row_bytes = config.d_tile_n * dtype(config.d).bytes
    if config.stores_by_tma and row_bytes % CHUNK_BYTES:
        raise ConfigError(
            f"store={config.store} moves whole {CHUNK_BYTES} bytes: a tile's row of D must be a "
            f"multiple of that, got {config.d_tile_n} columns of {config.d} = {row_bytes} bytes; "
            f"try tile_n={align_up(config.tile_n, config.tile_n * CHUNK_BYTES // row_bytes)} or "
            "store=global"
        )


def _check_epilogue(config: "Config") -> None:
    """What a gate and scales of D need."""
    if config.gated and (config.tile_n % (2 * GATE_COLUMNS) or config.split_k > 1):
        raise ConfigError(
            f"activation={config.activation} takes {GATE_COLUMNS} gates and {GATE_COLUMNS} "
            f"values in turns from one CTA: tile_n must be a multiple of {2 * GATE_COLUMNS} "
            f"and split_k 1, got tile_n={config.tile_n} and split_k={config.split_k}; try "
            f"split_k=1 and tile_n={align_up(config.tile_n, 2 * GATE_COLUMNS)}"
        )
    if config.d_scale == "group" and (config.d_tile_n % D_SCALE_BLOCK or config.split_k > 1):
        raise ConfigError(
            f"d_scale=group needs all {D_SCALE_BLOCK} columns of D that share a scale in one "
            f"CTA: a tile with a multiple of {D_SCALE_BLOCK} columns of D and split_k 1, got "
            f"{config.d_tile_n} and split_k={config.split_k}; try "
            f"tile_n={D_SCALE_BLOCK * config.tile_n // config.d_tile_n} and split_k=1"
        )

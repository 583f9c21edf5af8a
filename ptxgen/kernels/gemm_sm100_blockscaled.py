"""gemm_sm100_blockscaled: dense GEMM on tcgen05 whose scales the Tensor Core applies itself.

Pairs with templates/gemm_sm100_blockscaled.ptx.j2. Each row of A and column of D has one scale for
16, 32 or 128 of K. Scales come packed in atoms of 512 bytes (ptxgen.scale_tiles): TMA takes them to
shared memory with their k-tile, tcgen05.cp to tensor memory, where the MMA reads them.

Accumulation: mxf8f6f4 adds the scaled products of 32 of K and the accumulator as one sum with 25
fraction bits; the fp4 kinds sum groups of 16 exactly and add them with 35 bits. No hardware was at
hand: the kernel assembles and emulates. Source: PTX ISA 9.0, "Block Scaling"; for sums MMA-Sim,
arXiv 2511.10909.
"""

from collections.abc import Iterator
from dataclasses import replace

from ptxgen.arch import arch
from ptxgen.config_rules import counted_sms, with_most_stages
from ptxgen.errors import ConfigError
from ptxgen.kernels.agreement import check_agrees, check_known, check_plain, static_fields
from ptxgen.kernels.blockscaled_config import (
    NAME,
    TILE_K_BYTES,
    TILE_N_STEP,
    Config,
    check_kind,
    check_shape,
    fitting_columns,
)
from ptxgen.launch import Param, TensorMap
from ptxgen.micro_kinds import micro_kind
from ptxgen.operand_maps import (
    byte_map,
    check_d_fits_tma,
    check_operands_fit,
)
from ptxgen.plans import Plan, product_text
from ptxgen.problem import MICRO_SCALES, Gemm
from ptxgen.scale_tiles import (
    ATOM_BYTES,
    ATOM_COLUMNS,
    ATOM_ROWS,
    ATOM_SCALES,
    ScaleTile,
    num_atoms,
)
from ptxgen.tcgen05_choice import CLUSTERS, DEFAULT_STAGES, check_order, default_shape
from ptxgen.tcgen05_config import TARGET, TARGETS
from ptxgen.tcgen05_descriptors import BlockScaledDescriptor, SmemDescriptor
from ptxgen.tcgen05_plans import (
    NUM_SMS,
    barriers,
    epilogue_part,
    frame_fields,
    launch,
    operand_map_params,
    smem_map,
)

__all__ = ["NAME", "TARGET", "TARGETS", "UNIT", "Config", "check_operands", "configs",
           "default_config", "plan"]  # fmt: skip

UNIT = "tcgen05"
"""The Tensor Core's instruction, which decides how sums are rounded."""
MMA_K_BYTES = 32
CORE_BYTES = 128
"""Eight rows of 16 bytes: the stride between groups of rows of an atom of scales."""
NVF4_VERSION = "8.7"
"""First `.version` with mxf4nvf4 on sm_100a."""


def check_operands(problem: Gemm) -> None:
    """Refuse what no configuration computes, and operands that TMA cannot take.

    Raises: ConfigError.
    """
    check_plain(problem, NAME)
    if problem.scale not in MICRO_SCALES:
        raise ConfigError(
            f"{NAME} has no scale={problem.scale}; must be one of {', '.join(MICRO_SCALES)}; try "
            "scale=mx32, or gemm_sm100 for scales of whole rows"
        )
    if problem.accumulate != "fast":
        raise ConfigError(
            f"accumulate={problem.accumulate} must be fast: the Tensor Core scales every block "
            "itself, so there is nothing to promote; try accumulate=fast"
        )
    check_order(problem)
    check_operands_fit(problem, as_bytes=(problem.a, problem.b) == ("e2m1", "e2m1"))


def default_config(problem: Gemm, **chosen: int | str) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    check_known(NAME, Config, chosen)
    check_operands(problem)
    shape = {"kind": micro_kind(problem.a, problem.b, problem.scale), **chosen}
    values = {**static_fields(problem, Config), **default_shape(problem, shape)}
    values.setdefault("tile_k", TILE_K_BYTES * (1 if values["kind"] == "mxf8f6f4" else 2))
    width, columns = ("tile_m", problem.m) if values["swap_ab"] else ("tile_n", problem.n)
    values.setdefault(width, min(192, fitting_columns(columns)))
    config = Config(**values)
    config.check_values()
    check_kind(config)
    check_shape(config)
    if "accumulators" not in chosen and config.slots_that_fit < 2:
        config = replace(config, accumulators=1)
    if "stages" not in chosen:
        config = with_most_stages(config, DEFAULT_STAGES)
    if "scale_slots" not in chosen:
        config = replace(config, scale_slots=max(1, min(config.stages, config.slots_that_fit)))
        if config.recycles_scales and "stages" not in chosen:
            config = with_most_stages(config, config.stages)
    config.check()
    return config


def configs(problem: Gemm, target: str = TARGET) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    kind = default_config(problem, target=target).kind
    for cta_group, cluster_m, cluster_n in CLUSTERS:
        for tile_n in range(TILE_N_STEP, 257, TILE_N_STEP):
            for accumulators in (1, 2):
                for scheduler in ("static", "clc"):
                    chosen: dict[str, int | str] = {
                        "target": target, "cta_group": cta_group, "cluster_m": cluster_m,
                        "cluster_n": cluster_n, "tile_n": tile_n, "accumulators": accumulators,
                        "scheduler": scheduler, "kind": kind,
                    }  # fmt: skip
                    try:
                        yield default_config(problem, **chosen), None
                    except ConfigError as error:
                        config = Config(**static_fields(problem, Config), **chosen)  # type: ignore[arg-type]
                        yield config, str(error)


def plan(problem: Gemm, config: Config | None = None, num_sms: int = NUM_SMS) -> Plan:
    """Everything that the template prints and a device needs.

    num_sms: how many persistent CTAs may run at once (SMs of the device).

    Raises: ConfigError if the config is illegal or does not serve the problem, or
    num_sms is no number of SMs.
    """
    config = config or default_config(problem)
    num_sms = counted_sms(num_sms)
    config.check()
    _check_serves(problem, config)
    maps = _operand_maps(problem, config)
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=config.target,
        version=_version(config),
        launch=launch(problem, config, num_sms, maps),
        smem_map=smem_map(config),
        barriers=barriers(config),
        parts={
            "scheduler": f"scheduler_{config.scheduler}",
            "producer": "producer_tcgen05",
            "mainloop": "mainloop_tcgen05",
            "multiply": "multiply_scaled_tcgen05",
            "scale": "scale_none",
            "epilogue": epilogue_part(config),
        },
        fields=_fields(config),
    )


def _version(config: Config) -> str:
    if config.target == "sm_100a" and config.kind == "mxf4nvf4":
        return NVF4_VERSION
    return arch(config.target).min_ptx_version


def _check_serves(problem: Gemm, config: Config) -> None:
    check_operands(problem)
    check_agrees(problem, config)
    check_d_fits_tma(problem, config.store)
    check_operands_fit(problem, as_bytes=config.is_fp4)


def _operand_maps(problem: Gemm, config: Config) -> list[Param]:
    params = operand_map_params(problem, config)
    if config.is_fp4:
        tiles = zip(config.operands, (config.row_tile, config.column_tile), strict=True)
        maps = [byte_map(problem, operand, tile.box, "128B") for operand, tile in tiles]
        params = [
            Param(name, "tensor_map", value)
            for name, value in zip(("a_map", "b_map"), maps, strict=True)
        ]
    return params + [
        Param(name, "tensor_map", _scale_map(problem, scales))
        for name, scales in zip(("sfa_map", "sfb_map"), config.scale_tiles, strict=True)
    ]


def _scale_map(problem: Gemm, tile: ScaleTile) -> TensorMap:
    """Packed scales as words of an atom, atoms along K, blocks of 128 rows."""
    rows, scales = getattr(problem, f"scale_{tile.operand}_shape")
    if not rows or not scales:
        return TensorMap(None)
    k_atoms = num_atoms(scales, ATOM_SCALES)
    return TensorMap(
        buffer=f"scale_{tile.operand}",
        element_type="uint32",
        dims=(ATOM_BYTES // 4, k_atoms, num_atoms(rows, ATOM_ROWS)),
        strides_bytes=(ATOM_BYTES, ATOM_BYTES * k_atoms),
        box=tile.box,
        l2_promotion="256B",
    )


def _fields(config: Config) -> dict[str, object]:
    places = {r.name: r.offset for r in smem_map(config)}
    scale_a, scale_b = config.scale_tiles
    pair = ".cta_group::2" if config.cta_group == 2 else ""
    return {
        **frame_fields(config),
        "what": f"D[M,N] = {product_text(config.scale)}",
        "kind": config.kind,
        "kind_qualifiers": f"{config.kind}.block_scale.{_scale_vector(config)}",
        "mma_k": config.mma_k,
        "sfa_offset": places[f"sf{scale_a.operand}[0]"],
        "sfb_offset": places[f"sf{scale_b.operand}[0]"],
        "scale_descriptor": hex(SmemDescriptor(0, CORE_BYTES, "none").encode()),
        "scale_column": config.tmem.column(f"sf{scale_a.operand}[0]"),
        "scale_slot_columns": config.scale_columns,
        "sfb_column": scale_a.columns,
        "sfa_step": scale_a.blocks * ATOM_COLUMNS,
        "sfb_step": scale_b.blocks * ATOM_COLUMNS,
        "recycles_scales": config.recycles_scales,
        "locates_tile": config.swap_ab or config.columns % ATOM_ROWS != 0,
        "shifts_sfb": config.columns % ATOM_ROWS != 0,
        "selects_scale": config.scale == "mx128",
        "scale_id_unit": hex(_descriptor(config, 1) - _descriptor(config, 0)),
        "instruction_descriptor": hex(_descriptor(config, 0)),
        "scale_k_step": config.atoms,
        "steps_by_atoms": config.atoms > 1,
        "scale_loads": [
            {
                "map": f"%{role}_map",
                "row": f"%{role}_row",
                "offset": places[f"sf{tile.operand}[0]"],
                "qualifiers": pair,
            }
            for role, tile in (("sfa", scale_a), ("sfb", scale_b))
        ],
        "scale_copies": [
            {
                "descriptor": f"%{role}_desc",
                "units": tile.smem_offset(block, atom) >> 4,
                "tmem": f"%{role}_tmem",
                "column": tile.column(block, atom),
            }
            for role, tile in (("sfa", scale_a), ("sfb", scale_b))
            for atom in range(tile.atoms)
            for block in range(tile.blocks)
        ],
        "k_steps": [_k_step(config, step) for step in range(TILE_K_BYTES // MMA_K_BYTES)],
    }


def _k_step(config: Config, step: int) -> dict[str, object]:
    """One MMA of a k-tile: which scales of which atom it starts with."""
    first = step * config.scales_per_mma
    return {
        "a_units": step * config.row_tile.k_step_bytes >> 4,
        "b_units": step * config.column_tile.k_step_bytes >> 4,
        "accumulate": "1" if step else "%accumulate",
        "instruction": hex(_descriptor(config, first % ATOM_SCALES)),
        "moves_scales": config.scale != "mx128" and first > 0 and first % ATOM_SCALES == 0,
    }


def _descriptor(config: Config, scale_id: int) -> int:
    """The instruction descriptor of an MMA whose scales begin at byte `scale_id` of their words."""
    row_type, column_type = (getattr(config, operand) for operand in config.operands)
    return BlockScaledDescriptor(
        config.kind, row_type, column_type, MICRO_SCALES[config.scale][1], config.mma_m,
        0 if config.swap_ab else config.columns, scale_id, scale_id,
        config.row_tile.k_major, config.column_tile.k_major,
    ).encode()  # fmt: skip


def _scale_vector(config: Config) -> str:
    """The qualifier for the scales of one MMA: the f target knows the newer names only."""
    if config.target == "sm_100f":
        return "block16" if config.scale == "nv16" else "block32"
    return f"scale_vec::{config.scales_per_mma}X"

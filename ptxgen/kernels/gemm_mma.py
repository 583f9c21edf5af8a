"""gemm_mma: dense GEMM on mma.sync, for any stride and alignment, on sm_80 and up.

Pairs with templates/gemm_mma.ptx.j2. It serves what TMA or wgmma cannot: rows of any stride, bases
of any alignment, transposed FP8, GPUs without wgmma. Every warp copies its share of the tiles
(cp.async of 16, 8 or 4 bytes, or single elements through registers) into a ring of stages and runs
mma.sync on fragments that ldmatrix reads. One CTA computes one tile of D.

On sm_120a it also multiplies formats below 8 bits, which ldmatrix unpacks (the fp4 kinds take them
packed), and MMAs apply the scales of mx32, mx128 and nv16 themselves. No such GPU was at hand: for
sm_120a the kernel assembles and emulates.

Accumulation. fast: the accumulator of mma.sync over all of K. promoted: FP32 registers take
partial sums of 128 of K. bf16 and f16 on sm_90: an mma.sync adds 16 products and the accumulator
as one sum, aligned to the largest term, 25 fraction bits, truncated. FP8 on sm_90 (and sm_100,
sm_103) has no instruction of its own: ptxas turns m16n8k32 into conversions to f16 and two chained
f16 MMAs from zero (first the k with k % 4 in {0, 1}, then those with k % 4 in {2, 3}; 25 bits,
truncated), whose sum is added to the accumulator in FP32, rounded to nearest even; another ptxas
may do otherwise. sm_80 sums 16-bit products with 24 bits and splits K; sm_89 sums FP8 products
with 13 bits and splits K; sm_120 sums the f8f6f4 kinds with 25 bits, and groups of 16 of the fp4
kinds exactly. Measured on an H200; other GPUs after MMA-Sim (arXiv 2511.10909).
"""

from ptxgen.arch import arch
from ptxgen.config_rules import counted_sms
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.kernels.agreement import check_agrees
from ptxgen.kernels.gemm_mma_choice import NUM_SMS, configs, default_config
from ptxgen.kernels.gemm_mma_config import NAME, TARGET, TARGETS, Config
from ptxgen.kernels.gemm_mma_operands import check_operands, widest_access
from ptxgen.launch import Launch, Param
from ptxgen.layout import SmemRegion
from ptxgen.micro_kinds import MICRO_KINDS
from ptxgen.operand_buffers import operand_buffers
from ptxgen.plans import Plan, product_text
from ptxgen.problem import FP8, MICRO_SCALES, PROMOTION_K, Gemm
from ptxgen.raster import RASTER_M_TILES
from ptxgen.scale_tiles import ATOM_SCALES, num_atoms
from ptxgen.warp_schedule import (
    BLOCK_REGISTERS,
    DBlock,
    d_blocks,
    fragment_prefix,
    lane_map,
    step,
)
from ptxgen.warp_tiles import ASYNC_COPY_BYTES, STEP_BYTES, WarpTile

__all__ = ["NAME", "TARGET", "TARGETS", "UNIT", "Config", "check_operands", "configs",
           "default_config", "plan"]  # fmt: skip

FP8_VERSION = "8.4"
"""First `.version` with FP8 in mma.sync."""
ACCUMULATIONS = {"fast": "accumulation_mma_fast", "promoted": "accumulation_mma_promoted"}
UNIT = "mma"
"""The tensor core's instruction on sm_90, as ptxgen.verification models it; a config has its
own."""


def plan(problem: Gemm, config: Config | None = None, num_sms: int = NUM_SMS) -> Plan:
    """Everything that the template prints and a device needs.

    num_sms does not matter here: there is one CTA per tile of D, not one per SM.

    Raises: ConfigError if the config is illegal or does not serve the problem, or
    num_sms is no number of SMs.
    """
    config = config or default_config(problem)
    counted_sms(num_sms)
    config.check()
    _check_serves(problem, config)
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=config.target,
        version=_version(config),
        launch=_launch(problem, config),
        smem_map=_smem_map(config),
        barriers=(),
        parts={
            "scheduler": "scheduler_mma",
            "copy_a": _copy_part(config.a_tile),
            "copy_b": _copy_part(config.b_tile),
            "fragments_a": _fragments_part(config.a_tile),
            "fragments_b": _fragments_part(config.b_tile),
            "mainloop": "mainloop_mma",
            "multiply": "multiply_mma_scaled" if config.scale_tiles else "multiply_mma_plain",
            "accumulation": ACCUMULATIONS[config.accumulate],
            "scale": _scale_part(config),
            "epilogue": (
                "epilogue_mma_elements"
                if config.d_store_bytes == dtype(config.d).bytes
                else "epilogue_mma_pairs"
            ),
        },
        fields=_fields(config),
    )


def _check_serves(problem: Gemm, config: Config) -> None:
    check_operands(problem)
    check_agrees(problem, config)
    for operand, field in (("a", "a_copy_bytes"), ("b", "b_copy_bytes"), ("d", "d_store_bytes")):
        used, widest = getattr(config, field), widest_access(problem, operand)
        if problem.extent_bytes(operand) and used > widest:
            raise ConfigError(
                f"{field}={used} needs every row of {operand.upper()} to start at a multiple of "
                f"{used} bytes, got an alignment of {getattr(problem, f'{operand}_alignment')} and "
                f"a row stride of {problem.stride(operand)} elements; try {field}={widest}"
            )


def _version(config: Config) -> str:
    """The lowest `.version` that knows the target and, for FP8, the instruction."""
    needed = [arch(config.target).min_ptx_version]
    if config.a in FP8:
        needed.append(FP8_VERSION)
    return max(needed, key=lambda v: tuple(map(int, v.split("."))))


def _scale_part(config: Config) -> str:
    """What the epilogue applies: alpha alone where MMAs have applied the scales."""
    parts = {"rowcol": "scale_mma_rowcol", "tensor": "scale_tensor"}
    return parts.get(config.scale, "scale_none")


def _copy_part(tile: WarpTile) -> str:
    return "copy_mma_async" if tile.copy_bytes in ASYNC_COPY_BYTES else "copy_mma_elements"


def _fragments_part(tile: WarpTile) -> str:
    if tile.unpacks:
        return "fragments_mma_unpacked"
    if tile.k_major:
        return "fragments_mma_rows"
    return "fragments_mma_bytes" if tile.transposed_bytes else "fragments_mma_transposed"


def _smem_map(config: Config) -> tuple[SmemRegion, ...]:
    a, b = config.a_tile, config.b_tile
    regions = []
    for stage in range(config.stages):
        offset = stage * config.stage_bytes
        regions.append(SmemRegion(f"a[{stage}]", offset, a.nbytes, "A tile"))
        regions.append(SmemRegion(f"b[{stage}]", offset + a.nbytes, b.nbytes, "B tile"))
        for x in config.scale_tiles:
            what = f"scales of {x.operand.upper()}"
            regions.append(SmemRegion(f"{x.name}[{stage}]", offset + x.offset, x.nbytes, what))
    return tuple(regions)


def _launch(problem: Gemm, config: Config) -> Launch:
    num_m_tiles = -(-problem.m // config.tile_m)
    num_n_tiles = -(-problem.n // config.tile_n)
    params = []
    for operand in ("a", "b", "d"):
        stride_bytes = dtype(getattr(problem, operand)).packed_bytes(problem.stride(operand))
        if getattr(problem, f"{operand}_shape")[0] <= 1:
            stride_bytes = 0  # a single row has none that its copies must be aligned to
        params.append(Param(f"{operand}_pointer", "pointer", operand))
        params.append(Param(f"{operand}_stride_bytes", "u64", stride_bytes))
    if config.scale != "none":
        params.append(Param("scale_a", "pointer", "scale_a"))
        params.append(Param("scale_b", "pointer", "scale_b"))
    if config.scale in MICRO_SCALES:
        atoms = num_atoms(problem.scale_a_shape[1], ATOM_SCALES)
        params.append(Param("num_scale_atoms", "u32", atoms))
    params += [
        Param("m", "u32", problem.m),
        Param("n", "u32", problem.n),
        Param("k", "u32", problem.k),
        Param("num_k_tiles", "u32", -(-problem.k // config.tile_k)),
        Param("num_m_tiles", "u32", num_m_tiles),
        Param("num_n_tiles", "u32", num_n_tiles),
        Param("num_tiles", "u32", num_m_tiles * num_n_tiles),
        Param("raster_m_tiles", "u32", RASTER_M_TILES),
        Param("alpha", "f32", problem.alpha),
    ]
    return Launch(
        entry=str(config),
        grid_ctas=(max(1, num_m_tiles * num_n_tiles), 1, 1),
        cta_threads=(config.threads, 1, 1),
        dynamic_smem_bytes=config.smem_bytes,
        params=tuple(params),
        buffers=operand_buffers(problem),
    )


def _fields(config: Config) -> dict[str, object]:
    a, b = config.a_tile, config.b_tile
    d = dtype(config.d)
    scales = config.scale_tiles
    return {
        "config": config,
        "what": f"D[M,N] = {product_text(config.scale)}",
        "a": a,
        "b": b,
        "a_offset": 0,
        "b_offset": a.nbytes,
        "cta_threads": config.threads,
        "stage_bytes": config.stage_bytes,
        "ring_bytes": config.smem_bytes,
        "stages_ahead": config.stages - 1,
        "pending_groups": config.stages - 2,
        "warp_m_mask": config.warps_m - 1,
        "warp_n_shift": config.warps_m.bit_length() - 1,
        "warps": [
            {
                "index": i,
                "rows": _range(i % config.warps_m, a.warp_rows),
                "columns": _range(i // config.warps_m, b.warp_rows),
            }
            for i in range(config.warps_m * config.warps_n)
        ],
        "mma": _mma_shape(config),
        "places": not {a.copy_bytes, b.copy_bytes} <= set(ASYNC_COPY_BYTES),
        "pairs_columns": config.d_store_bytes != d.bytes,
        "reads_first": config.scale == "rowcol" or config.d_store_bytes == d.bytes,
        "scales": scales,
        "scale_words": scales[0].words if scales else 0,
        "repeats_scales": bool(scales) and scales[0].repeated,
        "starts": {"a": "%m_start", "b": "%n_start"},
        "extents": {"a": "%m", "b": "%n"},
        "warp_of": {"a": "%warp_m", "b": "%warp_n"},
        "num_registers": config.num_registers,
        "register_indices": list(range(config.num_registers)),
        "load_constant": "ld.global.nc",
        "promotion_tiles": PROMOTION_K // config.tile_k,
        "fragments": [
            {"prefix": fragment_prefix(t.name, half), "count": BLOCK_REGISTERS * t.num_blocks}
            for t in (a, b)
            for half in range(2)
        ],
        "first_step": step(a, b, -1),
        "steps": [step(a, b, index, scales) for index in range(a.num_steps)],
        "lanes": lane_map(a, b),
        "blocks": [
            {"row": block.row, "groups": _groups(block, config)} for block in d_blocks(a, b)
        ],
        "d_bytes": d.bytes,
        "packed": d.bytes == 2,
        "store_type": "b16" if d.bytes == 2 else "b32",
        "pack": {"bf16": "cvt.rn.bf16x2.f32", "f16": "cvt.rn.f16x2.f32", "f32": ""}[config.d],
        "convert": {"bf16": "cvt.rn.bf16.f32", "f16": "cvt.rn.f16.f32", "f32": "mov.b32"}[config.d],
    }


def _mma_shape(config: Config) -> str:
    """What follows mma.sync.aligned."""
    types = f"f32.{config.a}.{config.b}.f32"
    if config.scale not in MICRO_SCALES:
        mma_k = STEP_BYTES // dtype(config.a).bytes
        kind = f".kind::{config.kind}" if config.kind else ""
        return f"m16n8k{mma_k}.row.col{kind}.{types}"
    known = MICRO_KINDS[config.kind]
    vector = f"block_scale.scale_vec::{known.scales_per_mma(config.scale)}X"
    scale_type = MICRO_SCALES[config.scale][1]
    return f"m16n8k{known.mma_k}.row.col.kind::{config.kind}.{vector}.{types}.{scale_type}"


def _range(index: int, length: int) -> str:
    return f"{index * length}..{(index + 1) * length - 1}"


def _groups(block: DBlock, config: Config) -> list[dict[str, object]]:
    """Pairs of columns of one block of 16 rows: a lane's four values, and where they belong."""
    d_bytes = dtype(config.d).bytes
    result = "%sum" if config.accumulate == "promoted" else "%acc"
    rows = (("%row_inside", "%row_pointer"), ("%second_row_inside", "%second_row_pointer"))
    columns = ("%first_inside", "%second_inside")
    groups: list[dict[str, object]] = []
    for pair in block.pairs:
        values = [f"{result}{i}" for i in pair.values]
        groups.append(
            {
                "column": pair.column,
                "offset": pair.column * d_bytes,
                "held": values,
                "rows": [
                    {
                        "inside": inside,
                        "pointer": pointer,
                        "first": values[2 * r],
                        "second": values[2 * r + 1],
                    }
                    for r, (inside, pointer) in enumerate(rows)
                ],
                "placed": [
                    {
                        "register": values[2 * r + c],
                        "row_inside": inside,
                        "column_inside": columns[c],
                        "pointer": pointer,
                        "offset": (pair.column + c) * d_bytes,
                    }
                    for r, (inside, pointer) in enumerate(rows)
                    for c in range(2)
                ],
            }
        )
    return groups

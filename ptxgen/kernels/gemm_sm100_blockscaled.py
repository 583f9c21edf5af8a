"""gemm_sm100_blockscaled: dense GEMM on tcgen05 whose scales the Tensor Core applies itself.

Pairs with templates/gemm_sm100_blockscaled.ptx.j2. Each row of A and column of D has one scale for
16, 32 or 128 of K. Scales come packed in atoms of 512 bytes (ptxgen.scale_tiles): TMA takes them to
shared memory with their k-tile, tcgen05.cp to tensor memory, where the MMA reads them.

Accumulation: mxf8f6f4 adds the scaled products of 32 of K and the accumulator as one sum with 25
fraction bits; the fp4 kinds sum groups of 16 exactly and add them with 35 bits. No hardware was at
hand: the kernel assembles and emulates. Source: shared/reference/ptx.md D10, D11.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from ptxgen.arch import arch
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.launch import Buffer, Param, TensorMap
from ptxgen.layout import OperandTile, align_up
from ptxgen.operand_maps import (
    byte_map,
    check_byte_operand,
    check_d_fits_tma,
    check_operand,
    d_fits_tma,
)
from ptxgen.plans import Plan
from ptxgen.problem import MICRO_SCALES, Gemm
from ptxgen.scale_tiles import (
    ATOM_BYTES,
    ATOM_COLUMNS,
    ATOM_ROWS,
    ATOM_SCALES,
    ScaleTile,
    num_atoms,
    packed_scale_bytes,
)
from ptxgen.tcgen05_config import TARGET, TARGETS, Tcgen05Config
from ptxgen.tcgen05_descriptors import BlockScaledDescriptor, SmemDescriptor
from ptxgen.tcgen05_plans import (
    NUM_SMS,
    barriers,
    frame_fields,
    launch,
    operand_map_params,
    smem_map,
)
from ptxgen.tmem import TMEM_COLUMNS

__all__ = ["NAME", "TARGET", "TARGETS", "UNIT", "Config", "check_operands", "configs",
           "default_config", "plan"]  # fmt: skip

NAME = "gemm_sm100_blockscaled"
UNIT = "tcgen05"
"""The Tensor Core's instruction, which decides how sums are rounded."""
KINDS = ("mxf8f6f4", "mxf4", "mxf4nvf4")
TILE_K_BYTES = 128
"""Shared memory that one row of a k-tile takes: one row of the widest swizzle."""
MMA_K_BYTES = 32
CORE_BYTES = 128
"""Eight rows of 16 bytes: the stride between groups of rows of an atom of scales."""
TILE_N_STEP = 64
"""Tiles begin at whole or half atoms of scales. Finer steps are not known to work on hardware."""
NVF4_VERSION = "8.7"
"""First `.version` with mxf4nvf4 on sm_100a."""
COLUMN_STEP = 16
"""What the columns of an MMA are a multiple of."""
SWAPPED_ROWS = 64
"""Operands are swapped unasked up to this many rows of A. A guess, see gemm_sm100."""
DEFAULT_STAGES = 8
"""Stages beyond which more are not chosen unasked."""


@dataclass(frozen=True)
class Config(Tcgen05Config):
    """What may be tuned, and what the text depends on. `str()` is its name."""

    NAME: ClassVar[str] = NAME

    tile_k: int = 128
    kind: str = "mxf8f6f4"
    """The MMA's kind: mxf8f6f4; or for e2m1 mxf4 (mx32) or mxf4nvf4 (mx32 or nv16)."""
    scale_slots: int = 4
    """k-tiles whose scales are in tensor memory at once, at most `stages`."""

    @property
    def name_parts(self) -> tuple[str, ...]:
        """The words of the config's name."""
        parts = super().name_parts
        return (*parts[:2], self.kind, *parts[2:], f"f{self.scale_slots}")

    @property
    def is_fp4(self) -> bool:
        """Whether the kind takes two e2m1 from a byte; mxf8f6f4 wants each in a byte of its own."""
        return self.kind != "mxf8f6f4"

    def _operand_tile(self, operand: str, extent: int, slices: int) -> OperandTile:
        """A tile, in bytes along K if the kind is fp4."""
        tile = super()._operand_tile(operand, extent, slices)
        return replace(tile, dtype=dtype("u8"), k=self.tile_k // 2) if self.is_fp4 else tile

    @property
    def column_step(self) -> int:
        """What the columns of an MMA are a multiple of."""
        return COLUMN_STEP

    @property
    def mma_k(self) -> int:
        """K of one MMA, in elements."""
        return 64 if self.is_fp4 else 32

    @property
    def scales_per_mma(self) -> int:
        """Scales along K of one MMA: 1, 2 or 4."""
        return max(1, self.mma_k // MICRO_SCALES[self.scale][0])

    @property
    def atoms(self) -> int:
        """Atoms along K that hold the scales of one k-tile."""
        scales = self.tile_k // self.mma_k * self.scales_per_mma
        return 1 if self.scale == "mx128" else num_atoms(scales, ATOM_SCALES)

    @property
    def scale_tiles(self) -> tuple[ScaleTile, ...]:
        """Scales of one k-tile: of this CTA's rows of the MMA, and of all its columns."""
        extents = zip(self.operands, (self.rows, self.columns), strict=True)
        return tuple(ScaleTile(o, num_atoms(n, ATOM_ROWS), self.atoms) for o, n in extents)

    @property
    def scale_columns(self) -> int:
        """Columns of tensor memory for the scales of one k-tile."""
        return sum(tile.columns for tile in self.scale_tiles)

    @property
    def tmem_regions(self) -> list[tuple[str, int, str]]:
        """(name, columns, what) of everything in tensor memory."""
        scales = [
            (f"sf{tile.operand}[{slot}]", tile.columns, f"scales of {tile.operand.upper()}")
            for slot in range(self.scale_slots)
            for tile in self.scale_tiles
        ]
        return super().tmem_regions + scales

    @property
    def recycles_scales(self) -> bool:
        """Whether slots of scales are fewer than stages, so that they need a ring of their own."""
        return self.scale_slots < self.stages

    @property
    def barrier_counts(self) -> dict[str, int]:
        """Kinds of mbarriers and how many of each."""
        counts = super().barrier_counts
        return counts | {"scales_read": self.scale_slots} if self.recycles_scales else counts

    @property
    def stages_that_fit(self) -> int:
        """Stages that shared memory has room for, whatever `stages` says."""
        return super().stages_that_fit - (1 if self.recycles_scales else 0)

    @property
    def slots_that_fit(self) -> int:
        """Slots of scales that tensor memory has room for beside the accumulators."""
        taken = self.accumulators * self.accumulator.columns
        return max(0, (TMEM_COLUMNS - taken) // self.scale_columns)

    def check(self) -> None:
        """Refuse what cannot work, whatever the problem.

        Raises: ConfigError with rule, value, limit and what to try.
        """
        self.check_values()
        _check_kind(self)
        _check_shape(self)
        slots = self.scale_slots
        if isinstance(slots, bool) or not 1 <= slots <= self.stages:
            raise ConfigError(
                f"scale_slots={slots} must be from 1 to stages={self.stages}, since a k-tile's "
                "scales leave their stage with its MMAs"
            )
        if slots > self.slots_that_fit:
            raise ConfigError(
                f"scale_slots={slots} of {self.scale_columns} columns and {self.accumulators} "
                f"accumulator(s) of {self.accumulator.columns} need more than the {TMEM_COLUMNS} "
                f"columns of tensor memory; try scale_slots<={self.slots_that_fit}"
                if self.slots_that_fit
                else f"{self.accumulators} accumulator(s) of {self.accumulator.columns} columns "
                f"leave no room for scales in the {TMEM_COLUMNS} columns of tensor memory; try "
                "accumulators=1 or a smaller tile_n"
            )
        self.check_memory()


def _check_kind(config: Config) -> None:
    """Formats, scales and layouts that the kind has. Source: shared/reference/ptx.md D3, D10."""
    if config.kind not in KINDS:
        raise ConfigError(f"kind={config.kind!r} must be one of {', '.join(KINDS)}")
    scales = {"mxf8f6f4": ("mx32", "mx128"), "mxf4": ("mx32",), "mxf4nvf4": ("mx32", "nv16")}
    if config.scale not in scales[config.kind]:
        raise ConfigError(
            f"kind={config.kind} has no scale={config.scale}; must be "
            f"{' or '.join(scales[config.kind])}"
        )
    if config.is_fp4 and (config.a, config.b) != ("e2m1", "e2m1"):
        raise ConfigError(
            f"kind={config.kind} multiplies e2m1 with e2m1, got {config.a} with {config.b}; try "
            "kind=mxf8f6f4"
        )
    if config.swizzle_bytes != TILE_K_BYTES:
        raise ConfigError(
            f"swizzle={config.swizzle_bytes or 'none'} must be {TILE_K_BYTES}: a k-tile is one row "
            "of it, which whole atoms of scales cover"
        )
    tile_k = 2 * TILE_K_BYTES if config.is_fp4 else TILE_K_BYTES
    if config.tile_k != tile_k:
        raise ConfigError(f"tile_k={config.tile_k} must be {tile_k} for kind={config.kind}")


def _check_shape(config: Config) -> None:
    names = ("tile_n", "tile_m") if config.swap_ab else ("tile_m", "tile_n")
    if config.rows != ATOM_ROWS:
        raise ConfigError(
            f"{names[0]}={config.rows} must be {ATOM_ROWS}: block-scaled MMAs have 128 rows for "
            "each CTA, and half atoms of scales are not known to work"
        )
    n = config.columns
    if isinstance(n, bool) or n % TILE_N_STEP or not TILE_N_STEP <= n <= 256:
        raise ConfigError(
            f"{names[1]}={n} must be a multiple of {TILE_N_STEP} from {TILE_N_STEP} to 256, so "
            f"that tiles begin at whole or half atoms of scales; try {names[1]}={_fitting_n(n)}"
        )


def _fitting_n(n: int) -> int:
    return min(256, align_up(max(n, TILE_N_STEP), TILE_N_STEP))


def check_operands(problem: Gemm) -> None:
    """Refuse what no configuration computes, and operands that TMA cannot take.

    Raises: ConfigError.
    """
    if problem.scale not in MICRO_SCALES:
        raise ConfigError(
            f"{NAME} has no scale={problem.scale}; must be one of {', '.join(MICRO_SCALES)}"
        )
    if problem.accumulate != "fast":
        raise ConfigError(
            f"accumulate={problem.accumulate} must be fast: the Tensor Core scales every block "
            "itself, so there is nothing to promote"
        )
    for operand, transposed in (("a", problem.layout[0] == "t"), ("b", problem.layout[1] == "n")):
        kind = dtype(getattr(problem, operand))
        if transposed and kind.is_packed:
            raise ConfigError(
                f"layout={problem.layout}: {operand.upper()} of {kind} must be K-major, since "
                "tcgen05 transposes whole bytes only; try layout=nt"
            )
        if (problem.a, problem.b) == ("e2m1", "e2m1"):
            check_byte_operand(problem, operand)
        else:
            check_operand(problem, operand)


def static_fields(problem: Gemm) -> dict[str, str]:
    """The fields of a Config that the problem decides."""
    return {
        "a": problem.a,
        "b": problem.b,
        "d": problem.d,
        "layout": problem.layout,
        "scale": problem.scale,
    }


def default_config(problem: Gemm, **chosen: int | str) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    known = {f.name for f in fields(Config)}
    for name in chosen:
        if name not in known:
            raise ConfigError(f"{NAME} has no {name}; it has {', '.join(sorted(known))}")
    check_operands(problem)
    values: dict[str, int | str] = dict(static_fields(problem))
    swaps_wide = chosen.get("swap_ab") and dtype(problem.d).bytes != 2
    values["store"] = "tma" if d_fits_tma(problem) and not swaps_wide else "global"
    fp4 = (problem.a, problem.b) == ("e2m1", "e2m1") and problem.scale != "mx128"
    values["kind"] = "mxf8f6f4" if not fp4 else "mxf4nvf4" if problem.scale == "nv16" else "mxf4"
    values.update(chosen)
    values.setdefault("tile_k", TILE_K_BYTES * (1 if values["kind"] == "mxf8f6f4" else 2))
    fixed = {"tile_m", "tile_n", "cluster_m", "cluster_n"} & set(chosen)
    stores = values["store"] == "global" or dtype(problem.d).bytes == 2
    values.setdefault("swap_ab", problem.m <= SWAPPED_ROWS and not fixed and stores)
    swapped = bool(values["swap_ab"])
    rows, columns = (problem.n, problem.m) if swapped else (problem.m, problem.n)
    width, cluster = ("tile_m", "cluster_n") if swapped else ("tile_n", "cluster_m")
    if "cta_group" not in values:
        alone = cluster in chosen and int(chosen[cluster]) % 2
        values["cta_group"] = 1 if rows <= ATOM_ROWS or alone else 2
    values.setdefault(cluster, values["cta_group"])
    values.setdefault(width, min(192, _fitting_n(columns)))
    config = Config(**values)  # type: ignore[arg-type]
    config.check_values()
    _check_kind(config)
    _check_shape(config)
    if "accumulators" not in chosen and config.slots_that_fit < 2:
        config = replace(config, accumulators=1)
    if "stages" not in chosen:
        config = replace(config, stages=max(1, min(DEFAULT_STAGES, config.stages_that_fit)))
    if "scale_slots" not in chosen:
        config = replace(config, scale_slots=max(1, min(config.stages, config.slots_that_fit)))
        if config.recycles_scales and "stages" not in chosen:
            config = replace(config, stages=max(1, min(config.stages, config.stages_that_fit)))
    config.check()
    return config


def configs(problem: Gemm, target: str = TARGET) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    kind = default_config(problem, target=target).kind
    for cta_group, (cluster_m, cluster_n) in (
        (1, (1, 1)), (1, (2, 1)), (1, (1, 2)), (2, (2, 1)), (2, (4, 1)), (2, (2, 2)),
    ):  # fmt: skip
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
                        config = Config(**static_fields(problem), **chosen)  # type: ignore[arg-type]
                        yield config, str(error)


def plan(problem: Gemm, config: Config | None = None, num_sms: int = NUM_SMS) -> Plan:
    """Everything that the template prints and a device needs.

    num_sms: how many persistent CTAs may run at once (SMs of the device).

    Raises: ConfigError if the config is illegal or does not serve the problem.
    """
    config = config or default_config(problem)
    config.check()
    _check_serves(problem, config)
    maps = _operand_maps(problem, config)
    buffers = [
        Buffer(f"scale_{operand}", _scale_bytes(problem, operand), "in", "zeros")
        for operand in ("a", "b")
    ]
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=config.target,
        version=_version(config),
        launch=launch(problem, config, num_sms, maps, buffers),
        smem_map=smem_map(config),
        barriers=barriers(config),
        parts={
            "scheduler": f"scheduler_{config.scheduler}",
            "producer": "producer_tcgen05",
            "mainloop": "mainloop_tcgen05",
            "multiply": "multiply_scaled_tcgen05",
            "scale": "scale_none",
            "epilogue": (
                f"epilogue_{config.store}_swapped_tcgen05"
                if config.swap_ab
                else f"epilogue_{config.store}_tcgen05"
            ),
        },
        fields=_fields(config),
    )


def _version(config: Config) -> str:
    if config.target == "sm_100a" and config.kind == "mxf4nvf4":
        return NVF4_VERSION
    return arch(config.target).min_ptx_version


def _check_serves(problem: Gemm, config: Config) -> None:
    check_operands(problem)
    for name, value in static_fields(problem).items():
        if getattr(config, name) != value:
            raise ConfigError(
                f"config has {name}={getattr(config, name)}, the problem has {name}={value}; "
                "they must agree"
            )
    if config.store == "tma":
        check_d_fits_tma(problem)
    for operand in ("a", "b"):
        if not config.is_fp4:
            check_operand(problem, operand)


def _scale_bytes(problem: Gemm, operand: str) -> int:
    """Bytes of the packed scales of an operand."""
    rows, scales = getattr(problem, f"scale_{operand}_shape")
    return packed_scale_bytes(rows, scales)


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
        "what": f"D[M,N] = alpha * (scale_a A)[M,K] (scale_b B)[N,K]^T, {config.scale} scales",
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
        "scale_k_shift": 2 if config.scale == "mx128" else 0,
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

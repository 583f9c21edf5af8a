"""grouped_sm100: many GEMMs of one shape on Blackwell, whose rows are counted on the device.

Pairs with templates/grouped_sm100.ptx.j2. Operands are swapped, if not asked otherwise: B takes the
rows of tcgen05.mma, the few rows of A its columns, and the MMA is as wide as the rows that a tile
has. Not swapped, tiles have whole rows of the MMA, and D is stored element by element, as a TMA
store would write past a group's end. One warp of each CTA walks the groups and describes tiles;
the other roles are those of gemm_sm100.

Accumulation as in gemm_sm100. No hardware was at hand: the kernel assembles and emulates.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ptxgen.arch import ONE_CTA_BYTES, arch
from ptxgen.config_rules import counted_sms, with_most_stages
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import gemm_sm100
from ptxgen.kernels.agreement import check_agrees, check_known, index_kind, static_fields
from ptxgen.kernels.grouped_config import WORK_BYTES, WORK_SLOTS
from ptxgen.kernels.grouped_fields import MATRIX, STOP, unit_fields
from ptxgen.kernels.grouped_launch import grouped_launch
from ptxgen.launch import Launch, Param
from ptxgen.layout import WARP_LANES, Copy, align_up
from ptxgen.operand_maps import (
    check_d_fits_tma,
    check_operands_fit,
    d_fits_tma,
    d_map_params,
    tensor_map,
)
from ptxgen.plans import Barrier, Plan, product_text
from ptxgen.problem import INTEGERS, NARROW_FLOATS
from ptxgen.tcgen05_choice import DEFAULT_STAGES
from ptxgen.tcgen05_config import CTA_THREADS, TARGET, TARGETS
from ptxgen.tcgen05_plans import NUM_SMS, barriers, epilogue_part, smem_map

__all__ = ["NAME", "NUM_SMS", "TARGET", "TARGETS", "UNIT", "Config", "check_operands", "configs",
           "default_config", "plan"]  # fmt: skip

NAME = "grouped_sm100"
UNIT = "tcgen05"
"""The Tensor Core's instruction, which decides how sums are rounded."""
MODES = ("masked", "contiguous", "batched")
SCALES = ("none", "tensor", "rowcol")
DEFAULT_ROWS = 64
"""Rows of A of a tile that is not chosen: what decoding has, at most."""
MOST_COLUMNS = 192
"""Columns of D of a tile, if operands are not swapped: with more, places of elements spill."""
PIECE_BYTES = 16
"""What one lane stores of a row at a group's end."""


@dataclass(frozen=True)
class Config(gemm_sm100.Config):
    """What may be tuned, and what the text depends on. `str()` is its name."""

    NAME: ClassVar[str] = NAME

    swap_ab: bool = True
    mode: str = "masked"
    """How groups lie in memory: masked, contiguous or batched."""
    index: str = "offsets"
    """How a contiguous problem describes its groups."""

    @property
    def stream_k(self) -> bool:
        """Whether CTAs share tiles along K: not with this kernel."""
        return False

    @property
    def name_parts(self) -> tuple[str, ...]:
        """The words of the config's name."""
        mode = f"{self.mode}_{self.index}" if self.mode == "contiguous" else self.mode
        parts = super().name_parts
        return (*parts[:2], mode, *parts[2:])

    @property
    def scheduling_sizes(self) -> dict[str, tuple[int, str]]:
        """Shared memory through which tiles are handed out: name -> (bytes, what)."""
        return {"work": (WORK_BYTES * WORK_SLOTS, "descriptions of the next tiles")}

    @property
    def barrier_counts(self) -> dict[str, int]:
        """Kinds of mbarriers and how many of each."""
        return super().barrier_counts | {"work_full": WORK_SLOTS, "work_empty": WORK_SLOTS}

    @property
    def block_scaled(self) -> bool:
        """Whether each 128 of K have scales of their own."""
        return False

    @property
    def box_rows(self) -> int:
        """Rows of A of one TMA box: what one step of the MMA's columns takes from this CTA."""
        return self.column_step // self.cta_group

    def check_values(self) -> None:
        """Refuse fields outside their range.

        Raises: ConfigError.
        """
        if self.mode not in MODES:
            raise ConfigError(
                f"mode={self.mode} must be one of {', '.join(MODES)}; try mode={MODES[0]}"
            )
        if self.index != "offsets":
            raise ConfigError(
                f"index={self.index} must be offsets, as which a problem's ends are read, too; "
                "try index=offsets"
            )
        if not self.swap_ab and self.store != "global":
            raise ConfigError(
                f"swap_ab=off with store={self.store}: a TMA store of whole rows of the MMA would "
                "write past a group's end; try store=global"
            )
        if not self.swap_ab and self.tile_n > MOST_COLUMNS:
            raise ConfigError(
                f"tile_n={self.tile_n} without swapped operands must be at most {MOST_COLUMNS}: "
                "what says where each element is stored would spill; try "
                f"tile_n={MOST_COLUMNS}"
            )
        if self.scheduler != "static":
            raise ConfigError(
                f"scheduler={self.scheduler} must be static: a warp of each CTA walks the groups; "
                "try scheduler=static"
            )
        if self.swizzle_bytes != 128:
            raise ConfigError(
                f"swizzle={self.swizzle_bytes or 'none'} must be 128: rows of A are loaded in "
                "boxes of whole swizzled rows; try swizzle=128"
            )
        super().check_values()
        group = self.cta_group
        if self.cluster_rows != group or (self.cluster_columns > 1 and not self.swap_ab):
            along, fit = ("N", f"{self.cluster_m}x{group}") if self.swap_ab else ("M", f"{group}x1")
            raise ConfigError(
                f"cluster {self.cluster_m}x{self.cluster_n} must have cta_group={group} CTAs along "
                f"{along}: rows of A are not shared; try {fit}"
            )


def check_operands(problem: GroupedGemm) -> None:
    """Refuse what no configuration computes, and operands that TMA cannot take.

    Raises: ConfigError.
    """
    formats = (*gemm_sm100.KINDS, *NARROW_FLOATS, *INTEGERS)
    if problem.a not in formats or dtype(problem.a).is_packed or dtype(problem.b).is_packed:
        whole = ", ".join(name for name in formats if not dtype(name).is_packed)
        raise ConfigError(
            f"{NAME} does not multiply {problem.a} x {problem.b}; both must be one of {whole}; try "
            "e4m3"
        )
    for name, allowed in (("mode", MODES), ("scale", SCALES), ("accumulate", ("fast",))):
        value = getattr(problem, name)
        if value not in allowed:
            raise ConfigError(
                f"{NAME} has no {name}={value}; must be {' or '.join(allowed)}; try "
                f"{name}={allowed[0]}"
            )
    if index_kind(problem) != "offsets":
        raise ConfigError(
            f"{NAME} has no index={problem.index}; must be offsets or ends; try index=offsets"
        )
    check_operands_fit(problem)


def default_config(problem: GroupedGemm, **chosen: int | str | bool) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    check_known(NAME, Config, chosen)
    check_operands(problem)
    values: dict[str, int | str | bool] = dict(static_fields(problem, Config))
    swapped = bool(chosen.get("swap_ab", True))
    staged = swapped and d_fits_tma(problem) and dtype(problem.d).bytes == 2
    values["store"] = "tma" if staged else "global"
    values.update(chosen)
    values.setdefault("tile_k", 128 // dtype(problem.a).bytes)
    rows, columns = (problem.n, problem.m) if swapped else (problem.m, problem.n)
    names = ("tile_n", "tile_m", "cluster_n") if swapped else ("tile_m", "tile_n", "cluster_m")
    group = int(values.setdefault("cta_group", 1 if rows <= 128 else 2))
    values.setdefault(names[2], group)
    values.setdefault(names[0], 64 if rows <= 64 and group == 1 else 128)
    config = Config(**values)  # type: ignore[arg-type]
    config.check_values()
    if names[1] not in chosen:
        step, most = config.column_step, DEFAULT_ROWS if swapped else MOST_COLUMNS
        width = max(step, min(most, align_up(columns, step)))
        config = replace(config, tile_m=width) if swapped else replace(config, tile_n=width)
    if "stages" not in chosen:
        config = with_most_stages(config, DEFAULT_STAGES)
    config.check()
    return config


def configs(problem: GroupedGemm, target: str = TARGET) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    for cta_group, cluster_m in ((1, 1), (1, 2), (2, 1), (2, 2)):
        for tile_m in range(8, 257, 8):
            for tile_n in (64, 128):
                chosen: dict[str, int | str | bool] = {
                    "target": target, "cta_group": cta_group, "cluster_m": cluster_m,
                    "cluster_n": cta_group, "tile_m": tile_m, "tile_n": tile_n,
                }  # fmt: skip
                try:
                    yield default_config(problem, **chosen), None
                except ConfigError as error:
                    yield Config(**static_fields(problem, Config), **chosen), str(error)  # type: ignore[arg-type]


def plan(problem: GroupedGemm, config: Config | None = None, num_sms: int = NUM_SMS) -> Plan:
    """Everything that the template prints and a device needs.

    num_sms: how many persistent CTAs may run at once (SMs of the device).

    Raises: ConfigError if the config is illegal or does not serve the problem, or
    num_sms is no number of SMs.
    """
    config = config or default_config(problem)
    num_sms = counted_sms(num_sms)
    config.check()
    _check_serves(problem, config)
    groups = {
        "masked": "groups_masked", "contiguous": "groups_offsets", "batched": "groups_batched",
    }  # fmt: skip
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=config.target,
        version=arch(config.target).min_ptx_version,
        launch=_launch(problem, config, num_sms),
        smem_map=smem_map(config),
        barriers=_barriers(config),
        parts={
            "scheduler": "scheduler_groups_tcgen05",
            "groups": groups[config.mode],
            "producer": "producer_tcgen05",
            "mainloop": "mainloop_tcgen05",
            "multiply": "multiply_plain_tcgen05",
            "scale": "scale_raw" if config.d == "s32" else f"scale_grouped_{config.scale}",
            "epilogue": epilogue_part(config),
        },
        fields=_fields(config),
    )


def _check_serves(problem: GroupedGemm, config: Config) -> None:
    check_operands(problem)
    check_agrees(problem, config)
    check_d_fits_tma(problem, config.store)


def _barriers(config: Config) -> tuple[Barrier, ...]:
    """The protocol; stages of swapped operands hold the rows that a tile has."""
    return tuple(
        replace(barrier, counts_at_most=config.swap_ab and barrier.name == "full")
        for barrier in barriers(config)
    )


def _launch(problem: GroupedGemm, config: Config, num_sms: int) -> Launch:
    rows, columns = config.row_tile, config.column_tile
    box = (columns.box[0], config.box_rows) if config.swap_ab else columns.box
    first, second = config.operands
    maps = [
        Param("a_map", "tensor_map", tensor_map(problem, first, rows.box, rows.swizzle)),
        Param("b_map", "tensor_map", tensor_map(problem, second, box, columns.swizzle)),
    ]
    if config.store == "tma":
        maps += d_map_params(problem, config.swapped_staging)
    smem_bytes = max(config.smem_bytes, ONE_CTA_BYTES)
    return grouped_launch(problem, config, num_sms, maps, CTA_THREADS, smem_bytes)


def _fields(config: Config) -> dict[str, object]:
    common: dict[str, Any] = gemm_sm100.common_fields(config)
    a_matrix, b_matrix, d_matrix = MATRIX[config.mode]
    matrix = {"a": a_matrix, "b": b_matrix}
    row, column = config.operands
    for operand, name in zip(common["operands"], config.operands, strict=True):
        operand["matrix"] = matrix[name].replace("%group", "%tile_group")
    return {
        **common,
        **(_swapped_fields(config, common["operands"][1]) if config.swap_ab else {}),
        "what": f"D_g = {product_text(config.scale, 'A_g', 'B_g^T')}, {config.mode} groups",
        "grouped": True,
        "has_followers": config.cta_group == 2,
        "reads_rank": True,
        "has_scheduler": True,
        "d_matrix": d_matrix.replace("%group", "%tile_group"),
        "row_matrix": matrix[row],
        "column_matrix": matrix[column],
        "row_vector": f"%scale_{row}",
        "row_group_bytes": f"scale_{row}_group_bytes",
        "column_vector": f"%scale_{column}",
        "column_group_bytes": f"scale_{column}_group_bytes",
        **_work_fields(config),
        "walk": _walk_fields(config),
    }


def _swapped_fields(config: Config, columns: dict[str, object]) -> dict[str, object]:
    """What tiles of few rows of A print: the boxes that a tile has, and rows at a group's end.

    columns: what is printed of the MMA's second operand, whose boxes are guarded here.
    """
    steps = range(config.columns // config.column_step)
    tokens, staging = config.column_tile, config.swapped_staging
    box_bytes = config.box_rows * tokens.pitch_bytes
    columns["boxes"] = [
        {"part": Copy(i * box_bytes, i * config.box_rows, 0), "guard": f"@%box_used{i}"}
        for i in steps
    ]
    pieces_per_row = staging.box_bytes // PIECE_BYTES
    return {
        "counts_rows": True,
        "counts_columns": True,
        "tx_operand": "%tx_bytes",
        "row_tx_bytes": config.cta_group * config.row_tile.tx_bytes,
        "column_tx_bytes": tokens.pitch_bytes,
        "num_column_boxes": len(steps),
        "column_guards": [
            {"guard": f"%box_used{i}", "first_column": i * config.column_step} for i in steps
        ],
        "first_pieces": list(range(0, staging.rows * pieces_per_row, WARP_LANES)),
        "piece_bits": pieces_per_row.bit_length() - 1,
        "piece_columns": PIECE_BYTES // dtype(config.d).bytes,
    }


def _work_fields(config: Config) -> dict[str, object]:
    """What the ring of descriptions prints, for those who write and those who read."""
    offsets = config.offsets
    return {
        "stop": hex(STOP),
        "work_offset": offsets["work"],
        "work_offset_second": offsets["work"] + 16,
        "work_full_offset": offsets["work_full"],
        "work_empty_offset": offsets["work_empty"],
        "work_slots": WORK_SLOTS,
        "takes_k": False,
        "stream_k": False,
        "work_bytes": WORK_BYTES,
    }


def _walk_fields(config: Config) -> dict[str, object]:
    """What the walk over groups prints. It sees rows and columns of D, not of the MMA."""
    cluster_rows = config.tile_m * config.cluster_m
    return {
        **_work_fields(config),
        "config": config,
        "shares_b": config.cluster_m > 1,
        "cluster_rows": cluster_rows,
        "cluster_rows_less_one": cluster_rows - 1,
        **unit_fields(config.column_step if config.swap_ab else config.tile_m),
        "scan_distances": [1, 2, 4, 8, 16],
    }

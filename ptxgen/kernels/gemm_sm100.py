"""gemm_sm100: dense GEMM on Blackwell's tcgen05, with TMA, tensor memory and rings of mbarriers.

Pairs with templates/gemm_sm100.ptx.j2. One thread loads, one issues the MMAs of a CTA or of a CTA
pair, four warps take accumulators from tensor memory to D while the next tile is multiplied.

Accumulation is that of the tensor core: each instruction adds 32 bytes of K and the accumulator as
one sum with 25 fraction bits, truncated (i8: exact). No hardware was at hand: the kernel assembles
and emulates. Source: PTX ISA 9.0, "TensorCore 5th Generation Instructions"; for sums MMA-Sim,
arXiv 2511.10909.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from ptxgen.arch import arch
from ptxgen.config_rules import (
    GRIDS_KEPT,
    check_tile_k,
    counted_sms,
    with_most_stages,
    with_refusal,
)
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.kernels.agreement import check_agrees, check_known, check_plain, static_fields
from ptxgen.layout import MMA_K_BYTES, align_up
from ptxgen.operand_maps import check_d_fits_tma, check_operands_fit
from ptxgen.plans import Plan, product_text
from ptxgen.problem import INTEGERS, NARROW_FLOATS, Gemm
from ptxgen.tcgen05_choice import CLUSTERS, DEFAULT_STAGES, check_order, default_shape
from ptxgen.tcgen05_config import SWIZZLES, TARGET, TARGETS, Tcgen05Config
from ptxgen.tcgen05_descriptors import InstructionDescriptor
from ptxgen.tcgen05_plans import (
    NUM_SMS,
    barriers,
    epilogue_part,
    frame_fields,
    launch,
    operand_map_params,
    smem_map,
)

__all__ = ["NAME", "SWIZZLES", "TARGET", "TARGETS", "UNIT", "Config", "check_operands", "configs",
           "default_config", "plan"]  # fmt: skip

NAME = "gemm_sm100"
UNIT = "tcgen05"
"""The Tensor Core's instruction, which decides how sums are rounded."""
I8_TARGETS = ("sm_100a",)
"""Targets of ours with kind i8."""
SCALES = ("none", "tensor", "rowcol")
KINDS = {"bf16": "f16", "f16": "f16", "tf32": "tf32"}
"""Format of A -> kind; narrow floats are f8f6f4, integers are i8."""


@dataclass(frozen=True)
class Config(Tcgen05Config):
    """What may be tuned, and what the text depends on. `str()` is its name."""

    NAME: ClassVar[str] = NAME

    @property
    def kind(self) -> str:
        """The MMA's `.kind`."""
        return "i8" if self.a in INTEGERS else KINDS.get(self.a, "f8f6f4")

    def check(self) -> None:
        """Refuse what cannot work, whatever the problem.

        Raises: ConfigError with rule, value, limit and what to try.
        """
        self.check_values()
        _check_formats(self)
        _check_shape(self)
        self.check_memory()


def _check_formats(config: Config) -> None:
    """Formats, layouts and swizzles that the MMA's kind has."""
    _check_target(config.target, config.a, config.b)
    for tile in (config.a_tile, config.b_tile):
        kind = tile.dtype
        if kind.name == "tf32" and not tile.k_major and config.swizzle_bytes != 128:
            raise ConfigError(
                f"swizzle={config.swizzle_bytes or 'none'} with layout={config.layout}: tcgen05 "
                "transposes tf32 from 128-byte rows swizzled in atoms of 32 bytes; try swizzle=128"
            )
        if kind.is_packed and config.swizzle_bytes != 128:
            raise ConfigError(
                f"swizzle={config.swizzle_bytes or 'none'} with {kind}: TMA unpacks it in boxes of "
                "128 elements that must be swizzled by 128 bytes; try swizzle=128"
            )
    check_tile_k(config)


def _check_target(target: str, a: str, b: str) -> None:
    """Formats that the target has."""
    if a in INTEGERS and target not in I8_TARGETS:
        raise ConfigError(
            f"{a} x {b} needs kind::i8, which {target} lacks; must be {', '.join(I8_TARGETS)}; "
            "try e4m3"
        )


def _check_shape(config: Config) -> None:
    """Shapes of one MMA. Source: PTX ISA 9.0, "Matrix Shape" of tcgen05.mma."""
    step, n = config.column_step, config.columns
    name = "tile_m" if config.swap_ab else "tile_n"
    if isinstance(n, bool) or n % step or not step <= n <= 256:
        swapped = ", swapped," if config.swap_ab else ""
        raise ConfigError(
            f"{name}={n}{swapped} must be a multiple of {step} from {step} to 256 for "
            f"kind::{config.kind} with cta_group={config.cta_group}, {config.mma_m} rows and "
            f"layout={config.layout}; try {name}={min(256, align_up(max(n, step), step))}"
        )


def default_config(problem: Gemm, **chosen: int | str) -> Config:
    """A good configuration for the problem. `chosen` fields are kept as they are.

    `kind` may be among them, if only to have it checked: the formats decide it.

    Raises: ConfigError if no configuration with the chosen fields is legal.
    """
    kind = chosen.pop("kind", None)
    check_known(NAME, Config, chosen)
    check_operands(problem)
    values = {**static_fields(problem, Config), **default_shape(problem, chosen)}
    swizzle = int(values.setdefault("swizzle_bytes", 128))
    values.setdefault("tile_k", (swizzle or 128) // dtype(problem.a).bytes)
    swapped, group = bool(values["swap_ab"]), int(values["cta_group"])
    rows, columns = (problem.n, problem.m) if swapped else (problem.m, problem.n)
    names = ("tile_n", "tile_m") if swapped else ("tile_m", "tile_n")
    if names[0] not in values:
        single = group == 2 and swapped
        values[names[0]] = 64 if rows <= 64 * group and not single else 128
    config = Config(**values)
    config.check_values()
    if kind not in (None, config.kind):
        raise ConfigError(
            f"kind={kind} must be {config.kind} for {config.a} x {config.b} with "
            f"scale={config.scale}; the mx kinds need scale=mx32, mx128 or nv16; try "
            f"kind={config.kind}"
        )
    if names[1] not in chosen:
        step = config.column_step
        width = max(step, min(256, align_up(columns, step)))
        config = replace(config, tile_m=width) if swapped else replace(config, tile_n=width)
    if "stages" not in chosen:
        config = with_most_stages(config, DEFAULT_STAGES)
    config.check()
    return config


def configs(
    problem: Gemm, target: str = TARGET, swizzles: Sequence[int] = SWIZZLES
) -> Iterator[tuple[Config, str | None]]:
    """Every configuration of the grid below with None if it is legal, else why not."""
    base = replace(default_config(problem, target=target), tile_m=128, tile_n=128, stages=1)
    yield from _grid(base, tuple(swizzles))


@lru_cache(maxsize=GRIDS_KEPT)
def _grid(base: Config, swizzles: tuple[int, ...]) -> tuple[tuple[Config, str | None], ...]:
    """The grid for what `base` says of formats, scales, operands and D, with verdicts."""
    return tuple(
        with_refusal(
            with_most_stages(
                replace(
                    base, cta_group=cta_group, cluster_m=cluster_m, cluster_n=cluster_n,
                    tile_m=tile_m, tile_n=tile_n, swizzle_bytes=swizzle_bytes,
                    tile_k=(swizzle_bytes or 128) // dtype(base.a).bytes, scheduler=scheduler,
                ),
                DEFAULT_STAGES,
            )
        )
        for cta_group, cluster_m, cluster_n in CLUSTERS
        for tile_m in (64, 128)
        for tile_n in range(8, 257, 8)
        for swizzle_bytes in swizzles
        for scheduler in ("static", "clc")
    )  # fmt: skip


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
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=config.target,
        version=arch(config.target).min_ptx_version,
        launch=launch(problem, config, num_sms, operand_map_params(problem, config)),
        smem_map=smem_map(config),
        barriers=barriers(config),
        parts={
            "scheduler": f"scheduler_{config.scheduler}",
            "producer": "producer_tcgen05",
            "mainloop": "mainloop_tcgen05",
            "multiply": "multiply_plain_tcgen05",
            "scale": _scale_part(config),
            "epilogue": epilogue_part(config),
        },
        fields=_fields(config),
    )


def check_operands(problem: Gemm, target: str = "") -> None:
    """Refuse what no configuration computes, one for `target` if it is given, and operands that TMA
    cannot take.

    Raises: ConfigError.
    """
    check_plain(problem, NAME)
    if problem.a not in (*KINDS, *NARROW_FLOATS, *INTEGERS):
        formats = ", ".join((*KINDS, *NARROW_FLOATS, *INTEGERS))
        raise ConfigError(
            f"{NAME} does not multiply {problem.a} x {problem.b}; A must be one of {formats}; try "
            "bf16"
        )
    if target:
        _check_target(target, problem.a, problem.b)
    if problem.scale not in SCALES:
        raise ConfigError(
            f"{NAME} has no scale={problem.scale}; must be {', '.join(SCALES)}; try scale=mx32, "
            "whose scales the Tensor Core applies, or arch=sm_90a"
        )
    if problem.accumulate != "fast":
        raise ConfigError(
            f"accumulate={problem.accumulate} must be fast: tcgen05 sums every format with 25 "
            "fraction bits, so there is nothing to promote; try accumulate=fast"
        )
    check_order(problem)
    check_operands_fit(problem)


def _check_serves(problem: Gemm, config: Config) -> None:
    check_operands(problem)
    check_agrees(problem, config)
    check_d_fits_tma(problem, config.store)


def _scale_part(config: Config) -> str:
    if config.d == "s32":
        return "scale_raw"
    if config.scale == "rowcol" and config.swap_ab:
        return "scale_rowcol_swapped"
    return f"scale_{config.scale}"


def _fields(config: Config) -> dict[str, object]:
    return {**common_fields(config), "what": f"D[M,N] = {product_text(config.scale)}"}


def common_fields(config: Config) -> dict[str, object]:
    """What the template prints, whether one problem is computed or many."""
    a, b = config.row_tile, config.column_tile
    row_type, column_type = (getattr(config, operand) for operand in config.operands)
    return {
        **frame_fields(config),
        "kind": config.kind,
        "instruction_descriptor": hex(
            InstructionDescriptor(
                config.kind, row_type, column_type, "s32" if config.kind == "i8" else "f32",
                config.mma_m, 0 if config.swap_ab else config.columns, a.k_major, b.k_major,
            ).encode()
        ),
        "k_steps": [
            {
                "a_units": step * a.k_step_bytes >> 4,
                "b_units": step * b.k_step_bytes >> 4,
                "accumulate": "1" if step else "%accumulate",
            }
            for step in range(config.tile_k * a.dtype.bytes // MMA_K_BYTES)
        ],
    }  # fmt: skip

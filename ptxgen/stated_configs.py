"""The configs for Blackwell that are stated to assemble: one list, so that it can be counted.

Kinds, CTA groups, tiles, swapped operands, stores and targets are crossed; clusters, stages,
accumulators, schedulers and swizzles vary along the list. No Blackwell GPU was at hand: assembled
without spill at the lowest `.version`, and emulated in samples.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, product
from typing import Any

from ptxgen.dtypes import dtype
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import gemm_mma, gemm_sm100, gemm_sm100_blockscaled, grouped_sm100, kernel_of
from ptxgen.plans import Plan
from ptxgen.problem import INTEGERS, Gemm
from ptxgen.tcgen05_config import TARGETS

Fields = dict[str, Any]

SIZE = 512
"""M, N and K of the problems. Sizes do not change the text."""
DENSE = (
    ("bf16", "bf16", "bf16", "nt", "none"), ("bf16", "bf16", "f32", "tn", "rowcol"),
    ("f16", "f16", "f16", "tt", "tensor"), ("f16", "f16", "bf16", "nn", "none"),
    ("tf32", "tf32", "f32", "nt", "none"), ("tf32", "tf32", "bf16", "tn", "rowcol"),
    ("e4m3", "e4m3", "bf16", "nt", "rowcol"), ("e5m2", "e4m3", "f16", "tt", "tensor"),
    ("e4m3", "e2m1", "bf16", "nt", "none"), ("e3m2", "e2m3", "f32", "nt", "none"),
    ("e2m1", "e2m1", "bf16", "nt", "tensor"), ("s8", "u8", "s32", "nt", "none"),
    ("u8", "u8", "bf16", "tn", "rowcol"),
)  # fmt: skip
"""A, B, D, layout and scale of the kinds f16, tf32, f8f6f4 and i8."""
MICRO = (
    ("e4m3", "e5m2", "mx32", "mxf8f6f4"), ("e2m1", "e4m3", "mx128", "mxf8f6f4"),
    ("e2m1", "e2m1", "mx32", "mxf4"), ("e2m1", "e2m1", "mx32", "mxf4nvf4"),
    ("e2m1", "e2m1", "nv16", "mxf4nvf4"),
)  # fmt: skip
"""A, B, scale and kind of MMAs that apply scales."""
GROUPED = (
    ("bf16", "bf16", "none"), ("e4m3", "bf16", "rowcol"), ("e5m2", "f16", "tensor"),
    ("tf32", "f32", "none"), ("s8", "s32", "none"),
)  # fmt: skip
"""A and B, D, and scale of groups."""
FORMS: tuple[Fields, ...] = (
    {"cta_group": 1, "tile_m": 64}, {"cta_group": 1, "tile_m": 128},
    {"cta_group": 2, "tile_m": 64}, {"cta_group": 2, "tile_m": 128},
    {"swap_ab": True, "cta_group": 1, "tile_n": 64},
    {"swap_ab": True, "cta_group": 1, "tile_n": 128},
    {"swap_ab": True, "cta_group": 2, "tile_n": 128, "cluster_n": 2},
)  # fmt: skip
"""CTA groups, rows of the MMA, and whether B takes them: every accumulator layout."""
GROUPED_FORMS = (FORMS[1], FORMS[3], *FORMS[4:])
"""The same of groups, where operands are swapped if not asked otherwise."""
WARP_TILES = ((16, 128, 1, 4), (32, 32, 2, 2), (64, 64, 2, 2), (64, 128, 2, 4), (128, 64, 4, 2))
"""tile_m, tile_n, and warps along them, of mma.sync."""


@dataclass(frozen=True)
class Stated:
    """One config, and a problem that it serves."""

    problem: Gemm | GroupedGemm
    config: Any

    @property
    def plan(self) -> Plan:
        """The plan of its text."""
        found: Plan = kernel_of(self.config).plan(self.problem, self.config)
        return found


def stated_configs(target: str | None = None) -> list[Stated]:
    """The list, or its part for one target."""
    found = [*_dense(), *_block_scaled(), *_grouped(), *_warp_level()]
    return [s for s in found if target in (None, s.config.target)]


def _dense() -> Iterator[Stated]:
    for number, (target, (a, b, d, layout, scale), form, width) in zip(
        count(), product(TARGETS, DENSE, FORMS, (64, 256)), strict=False
    ):
        if a in INTEGERS and target not in gemm_sm100.I8_TARGETS:
            continue
        problem = Gemm(SIZE, SIZE, SIZE, a, b, d, layout, scale)
        swapped = form.get("swap_ab", False)
        chosen = {
            "target": target, **form, ("tile_m" if swapped else "tile_n"): width,
            "swap_ab": swapped, "scheduler": ("static", "clc")[number % 2],
            "accumulators": 1 + number // 2 % 2,
        }  # fmt: skip
        if number % 3 == 0:
            chosen["stages"] = 2
        if number % 5 == 0 and form["cta_group"] == 1:
            chosen |= {"cluster_m": 2, "cluster_n": 2}
        if number % 7 == 0:
            chosen["store"] = "global"
        if number % 4 == 0 and not {dtype(a).bits, dtype(b).bits} & {4, 6, 32}:
            chosen["swizzle_bytes"] = (64, 32)[number // 4 % 2]
        yield Stated(problem, gemm_sm100.default_config(problem, **chosen))


def _block_scaled() -> Iterator[Stated]:
    for number, (target, (a, b, scale, kind), form, width) in zip(
        count(), product(TARGETS, MICRO, FORMS, (64, 128, 192)), strict=False
    ):
        if 64 in (form.get("tile_m"), form.get("tile_n")):
            continue  # block-scaled MMAs have 128 rows for each CTA
        problem = Gemm(SIZE, SIZE, SIZE, a, b, scale=scale)
        swapped = form.get("swap_ab", False)
        chosen = {
            "target": target, **form, ("tile_m" if swapped else "tile_n"): width,
            "swap_ab": swapped, "kind": kind, "scheduler": ("static", "clc")[number % 2],
        }  # fmt: skip
        if number % 3 == 0:
            chosen |= {"stages": 2, "scale_slots": 1}
        yield Stated(problem, gemm_sm100_blockscaled.default_config(problem, **chosen))


def _grouped() -> Iterator[Stated]:
    for number, (target, mode, (a, d, scale), form) in zip(
        count(), product(TARGETS, grouped_sm100.MODES, GROUPED, GROUPED_FORMS), strict=False
    ):
        if a in INTEGERS and target not in gemm_sm100.I8_TARGETS:
            continue
        problem = GroupedGemm(mode, 4, SIZE, SIZE, SIZE, a, a, d, scale)
        swapped = form.get("swap_ab", False)
        most = 256 if swapped else grouped_sm100.MOST_COLUMNS
        chosen = {
            "target": target, **form, "swap_ab": swapped,
            ("tile_m" if swapped else "tile_n"): (32, 64, 128, most)[number % 4],
        }  # fmt: skip
        if number % 3 == 0:
            chosen |= {"stages": 2, "store": "global"}
        yield Stated(problem, grouped_sm100.default_config(problem, **chosen))


def _warp_level() -> Iterator[Stated]:
    unscaled = (("bf16", "bf16"), ("e4m3", "e5m2"), ("e2m1", "e4m3"), ("e3m2", "e2m3"))
    kinds: list[tuple[str, str, str, Fields]] = [(a, b, "none", {}) for a, b in unscaled]
    kinds += [(a, b, scale, {"kind": kind}) for a, b, scale, kind in MICRO]
    for (a, b, scale, more), (tile_m, tile_n, warps_m, warps_n) in product(kinds, WARP_TILES):
        problem = Gemm(SIZE, SIZE, SIZE, a, b, scale=scale)
        config = gemm_mma.default_config(
            problem, target="sm_120a", tile_m=tile_m, tile_n=tile_n, warps_m=warps_m,
            warps_n=warps_n, **more,
        )  # fmt: skip
        yield Stated(problem, config)

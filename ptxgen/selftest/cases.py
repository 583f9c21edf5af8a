"""The cases of a selftest: formats, kinds, CTA groups, layouts, swapped operands and tails."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, product
from typing import Any

from ptxgen.arch import arch
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import (
    gemm_mma,
    gemm_mma_config,
    gemm_sm90,
    gemm_sm100,
    gemm_sm100_blockscaled,
    grouped_sm90,
    grouped_sm100,
)
from ptxgen.problem import INTEGERS, MICRO_SCALES, Gemm
from ptxgen.stated_configs import DENSE, FORMS, GROUPED, GROUPED_FORMS, MICRO, WARP_TILES
from ptxgen.tcgen05_config import TARGETS

SMALL = 24
"""Cases of a small selftest, spread over all."""
SIZES = ((272, 80, 208), (256, 256, 256), (144, 272, 640), (16, 512, 1040), (640, 48, 80))
"""M, N, K: whole tiles and tails of every dimension, in 16-byte rows whatever the layout."""
PACKED_K = (256, 128, 640, 1024, 384)
"""K instead, where TMA takes formats below 8 bits: in 128s."""
ODD_SIZES = ((1, 8, 64), (63, 65, 72), (129, 127, 136), (257, 33, 8))
"""Sizes that 16-byte rows of K allow beside, where both operands are K-major."""
TOKENS = (1, 7, 8, 9, 15, 16, 17, 33, 64, 100, 129, 255, 256)
"""Rows of A with operands swapped: the MMA is as wide as they need, at run time."""
ROWS = (70, 0, 17, 64, 3)
"""Rows of groups: a tile and a tail, none, more and fewer than 16, a whole tile."""
HOPPER = (
    ("bf16", "bf16", "bf16", "none", "fast"), ("f16", "f16", "f32", "rowcol", "promoted"),
    ("e4m3", "e5m2", "bf16", "tensor", "fast"), ("e4m3", "e4m3", "f16", "rowcol", "promoted"),
    ("e4m3", "e4m3", "bf16", "block", "promoted"), ("e5m2", "e4m3", "f32", "group", "promoted"),
)  # fmt: skip
"""A, B, D, scale and accumulation on wgmma."""


@dataclass(frozen=True)
class Case:
    """One product that is computed and checked."""

    problem: Gemm | GroupedGemm
    config: Any
    rows: tuple[int, ...] = ()
    """Rows of each group."""

    @property
    def name(self) -> str:
        """What tells it from the others."""
        p = self.problem
        rows = "_rows" + "x".join(map(str, self.rows)) if self.rows else ""
        return f"{p.m}x{p.n}x{p.k}{rows}_{self.config}"


def cases(target: str, small: bool = False) -> list[Case]:
    """All cases of a target, or a few of them.

    Raises: ConfigError if there is nothing to test on the target.
    """
    name = arch(target).name
    if name in TARGETS:
        found = [*_dense(name), *_tokens(name), *_block_scaled(name), *_groups(name)]
    elif name in gemm_sm90.TARGETS:
        found = [*_hopper(), *_hopper_groups(), *_warp_level(name)]
    elif name in gemm_mma.TARGETS:
        found = list(_warp_level(name))
    else:
        raise ConfigError(f"arch={target} has nothing to test; try a GPU of sm_90a or newer")
    return found[:: max(1, len(found) // SMALL)] if small else found


def _size(number: int, a: str, b: str, layout: str, scale: str) -> tuple[int, int, int]:
    """Sizes of case `number` that TMA can address."""
    m, n, k = SIZES[number % len(SIZES)]
    if dtype(a).is_packed or dtype(b).is_packed:
        return m, n, PACKED_K[number % len(SIZES)]
    if layout == "nt" and number % 2 and scale not in MICRO_SCALES:
        m, n, k = ODD_SIZES[number // 2 % len(ODD_SIZES)]
        return m, n, -(-k * dtype(a).bytes // 16) * 16 // dtype(a).bytes
    return m, n, k


def _dense(target: str) -> Iterator[Case]:
    number = count()
    for (a, b, d, layout, scale), form, _ in product(DENSE, FORMS, range(2)):
        if a in INTEGERS and target not in gemm_sm100.I8_TARGETS:
            continue
        index = next(number)
        problem = Gemm(*_size(index, a, b, layout, scale), a, b, d, layout, scale)
        swapped = form.get("swap_ab", False)
        chosen = {
            "target": target, **form, "swap_ab": swapped, "scheduler": ("static", "clc")[index % 2],
            ("tile_m" if swapped else "tile_n"): 64,
        }  # fmt: skip
        if index % 5 == 0 and form["cta_group"] == 1:
            chosen |= {"cluster_m": 2, "cluster_n": 2}
        yield Case(problem, gemm_sm100.default_config(problem, **chosen))


def _tokens(target: str) -> Iterator[Case]:
    for a, form, tokens in product(("bf16", "e4m3", "e2m1", "s8"), FORMS[4:], TOKENS):
        if a in INTEGERS and target not in gemm_sm100.I8_TARGETS:
            continue
        problem = Gemm(tokens, 264, 256, a, a)
        chosen = {"target": target, **form, "tile_m": 256, "stages": 2}
        yield Case(problem, gemm_sm100.default_config(problem, **chosen))


def _block_scaled(target: str) -> Iterator[Case]:
    number = count()
    for (a, b, scale, kind), form, _ in product(MICRO, FORMS, range(3)):
        if 64 in (form.get("tile_m"), form.get("tile_n")):
            continue
        index = next(number)
        problem = Gemm(*_size(index, a, b, "nt", scale), a, b, scale=scale)
        chosen = {
            "target": target, **form, "swap_ab": form.get("swap_ab", False), "kind": kind,
            "scheduler": ("static", "clc")[index % 2],
        }  # fmt: skip
        yield Case(problem, gemm_sm100_blockscaled.default_config(problem, **chosen))


def _groups(target: str) -> Iterator[Case]:
    for mode, (a, d, scale), form in product(grouped_sm100.MODES, GROUPED, GROUPED_FORMS):
        if a in INTEGERS and target not in gemm_sm100.I8_TARGETS:
            continue
        problem, rows = _group_problem(mode, a, d, scale, "fast")
        chosen = {"target": target, **form, "swap_ab": form.get("swap_ab", False)}
        yield Case(problem, grouped_sm100.default_config(problem, **chosen), rows)


def _group_problem(
    mode: str, a: str, d: str, scale: str, accumulate: str
) -> tuple[GroupedGemm, tuple[int, ...]]:
    rows = ROWS if mode != "batched" else (72,) * len(ROWS)
    m = sum(rows) if mode == "contiguous" else 72
    return GroupedGemm(mode, len(rows), m, 136, 400, a, a, d, scale, accumulate), rows


def _hopper() -> Iterator[Case]:
    number = count()
    for (a, b, d, scale, accumulate), layout in product(HOPPER, ("nt", "nn", "tn", "tt")):
        if layout != "nt" and dtype(a).bytes == 1:
            continue
        for _ in range(5):
            size = _size(next(number), a, b, layout, scale)
            problem = Gemm(*size, a, b, d, layout, scale, accumulate)
            yield Case(problem, gemm_sm90.default_config(problem))


def _hopper_groups() -> Iterator[Case]:
    for mode, (a, b, d, scale, accumulate), swapped in product(
        ("masked", "contiguous", "batched"), HOPPER, (False, True)
    ):
        if a != b:
            continue
        problem, rows = _group_problem(mode, a, d, scale, accumulate)
        yield Case(problem, grouped_sm90.default_config(problem, swap_ab=swapped), rows)


def _warp_level(target: str) -> Iterator[Case]:
    kinds: list[tuple[str, str, str, dict[str, Any]]] = [
        (a, a, scale, {}) for a, scale in product(("bf16", "f16", "e4m3"), ("none", "rowcol"))
    ]
    if target in gemm_mma_config.MICRO_TARGETS:
        kinds += [(a, b, "none", {}) for a, b in (("e2m1", "e4m3"), ("e3m2", "e2m3"))]
        kinds += [(a, b, scale, {"kind": kind}) for a, b, scale, kind in MICRO]
    for index, ((a, b, scale, more), (tile_m, tile_n, warps_m, warps_n)) in enumerate(
        product(kinds, WARP_TILES)
    ):
        if a == "e4m3" and int(arch(target).name[3:].rstrip("af")) < gemm_mma_config.FP8_TARGET:
            continue
        k = (144, 400, 80, 1040)[index % 4]
        if tile_m == tile_n == 32 and not dtype(a).is_packed and not dtype(b).is_packed:
            k = 1028  # narrow copies, which large tiles refuse
        problem = Gemm(tile_m + 24, tile_n + 8, k, a, b, scale=scale)
        config = gemm_mma.default_config(
            problem, target=target, tile_m=tile_m, tile_n=tile_n, warps_m=warps_m,
            warps_n=warps_n, **more,
        )  # fmt: skip
        yield Case(problem, config)

"""The kernels whose text is kept in tests/golden/: small tiles, one of every way to work.

`python tests/golden_kernels.py` writes the files anew. Read the difference before you commit it.
"""

import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ptxgen.epilogue import Epilogue
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm90, grouped_sm100, kernel_for, target_fields
from ptxgen.plans import Plan
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.subjects import Subject, exercising_grouped_subjects, exercising_subjects

FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Golden:
    """One kernel."""

    arch: str
    problem: dict[str, Any]
    """Formats, layout, scale, accumulation and epilogue. Sizes do not change the text."""
    chosen: dict[str, Any] = field(default_factory=dict)
    """Fields of the Config."""

    @property
    def gemm(self) -> Gemm:
        """A problem of this kind."""
        return Gemm(256, 256, 512, **self.problem)

    @property
    def kernel(self) -> Any:
        """Module of ptxgen.kernels."""
        return kernel_for(self.gemm, self.arch)

    @property
    def config(self) -> Any:
        """The config, completed."""
        fixed = target_fields(self.kernel, self.arch)
        return self.kernel.default_config(self.gemm, **fixed, **self.chosen)

    def plan(self) -> Plan:
        """What its template prints."""
        plan: Plan = self.kernel.plan(self.gemm, self.config)
        return plan

    def text(self) -> str:
        """What the templates say now."""
        return render(self.plan()).text

    def subjects(self) -> list[Subject]:
        """Small problems that together execute all of it."""
        return exercising_subjects(self.gemm, self.config, self.kernel)


@dataclass(frozen=True)
class GroupedGolden:
    """One grouped kernel."""

    kernel: Any
    problem: GroupedGemm
    """Sizes do not change the text."""
    chosen: dict[str, Any]

    @property
    def config(self) -> Any:
        """The config, completed."""
        return self.kernel.default_config(self.problem, **self.chosen)

    def plan(self) -> Plan:
        """What its template prints."""
        plan: Plan = self.kernel.plan(self.problem, self.config)
        return plan

    def text(self) -> str:
        """What the templates say now."""
        return render(self.plan()).text

    def subjects(self) -> list[Subject]:
        """Small problems that together execute all of it."""
        return exercising_grouped_subjects(self.problem, self.config, self.kernel)


FP8 = {"a": "e4m3", "b": "e4m3"}
SMALL = {"tile_m": 128, "tile_n": 32, "tile_k": 128, "stages": 2}
AHEAD = {**SMALL, "stages": 3}
"""With two stages, the next one is never full when a loop that asks ahead asks for it."""
BLOCK = {**FP8, "scale": "block", "accumulate": "promoted"}


@cache
def golden_kernels() -> dict[str, Golden | GroupedGolden]:
    """All of them by file name."""
    return {
        "gemm_sm90_fast": Golden("sm_90a", FP8, {**SMALL, "store": "tma"}),
        "gemm_sm90_deferred": Golden(
            "sm_90a", {**FP8, "scale": "rowcol"}, {**SMALL, "tile_n": 128, "store": "deferred"}
        ),
        "gemm_sm90_promoted": Golden("sm_90a", {**FP8, "accumulate": "promoted"}, AHEAD),
        "gemm_sm90_block": Golden("sm_90a", BLOCK, AHEAD),
        "gemm_sm90_three_warpgroups": Golden(
            "sm_90a", BLOCK, {**SMALL, "tile_m": 192, "warpgroups": 3}
        ),
        "gemm_sm90_cluster": Golden("sm_90a", FP8, {**SMALL, "store": "tma", "cluster_m": 2}),
        "gemm_sm90_global": Golden(
            "sm_90a",
            {"a": "bf16", "b": "bf16", "d": "f32", "layout": "tn", "scale": "rowcol"},
            {**SMALL, "tile_k": 64, "warpgroups": 1, "tile_m": 64, "store": "global"},
        ),
        "gemm_sm90_rows": Golden(
            "sm_90a",
            {"a": "e4m3", "b": "e4m3", "d": "bf16", "scale": "tensor"},
            {**SMALL, "warpgroups": 1, "tile_m": 64, "tile_n": 72, "store": "global"},
        ),
        "gemm_sm90_two_ctas": Golden(
            "sm_90a",
            FP8,
            {
                **SMALL,
                "tile_m": 64,
                "warpgroups": 1,
                "store": "deferred_global",
                "ctas_per_sm": 2,
            },
        ),
        "gemm_sm90_epilogue": Golden(
            "sm_90a",
            {
                "a": "bf16",
                "b": "bf16",
                "epilogue": Epilogue(bias="column", activation="swiglu", amax=True),
            },
            {**SMALL, "tile_k": 64, "store": "deferred"},
        ),
        "gemm_sm90_quantized": Golden(
            "sm_90a",
            {**FP8, "d": "e4m3", "epilogue": Epilogue(d_scale="group")},
            {**SMALL, "tile_m": 64, "warpgroups": 1, "tile_n": 128},
        ),
        "gemm_sm90_ue8m0": Golden("sm_90a", {**BLOCK, "scale_format": "ue8m0"}, AHEAD),
        "gemm_mma": Golden("sm_80", {}, {"tile_m": 32, "tile_n": 32, "stages": 3}),
        "gemm_mma_scaled": Golden(
            "sm_120a",
            {"a": "e2m1", "b": "e4m3", "scale": "mx32"},
            {"tile_m": 32, "tile_n": 32, "warps_m": 2, "warps_n": 2, "stages": 3},
        ),
        "gemm_sm100": Golden("sm_100a", FP8, {**SMALL, "cta_group": 1}),
        "gemm_sm100_pair": Golden(
            "sm_100a", {}, {**SMALL, "tile_k": 64, "cta_group": 2, "scheduler": "clc"}
        ),
        "gemm_sm100_swapped": Golden(
            "sm_100a",
            FP8,
            {"tile_m": 32, "tile_n": 128, "stages": 2, "cta_group": 2, "swap_ab": True},
        ),
        "gemm_sm100_blockscaled": Golden(
            "sm_100a", {**FP8, "scale": "mx32"}, {"tile_n": 64, "stages": 2}
        ),
        "grouped_sm90": GroupedGolden(
            grouped_sm90,
            GroupedGemm("contiguous", 4, 90, 136, 400, "bf16", "bf16"),
            {"tile_m": 64, "tile_n": 64, "cluster_m": 2, "stages": 3},
        ),
        "grouped_sm90_swapped": GroupedGolden(
            grouped_sm90,
            GroupedGemm("masked", 4, 72, 136, 400, scale="block", accumulate="promoted"),
            {"swap_ab": True, "tile_m": 16, "stages": 3},
        ),
        "grouped_sm90_stream_k": GroupedGolden(
            grouped_sm90,
            GroupedGemm("masked", 4, 72, 136, 2048, "bf16", "bf16"),
            {"tile_m": 128, "tile_n": 32, "stages": 2, "stream_k": True},
        ),
        "grouped_sm90_added": GroupedGolden(
            grouped_sm90,
            GroupedGemm("kgrouped", 3, 200, 40, 416, "bf16", "bf16", d="f32", alignment=16),
            {"tile_m": 64, "tile_n": 32, "warpgroups": 1, "cluster_m": 2, "stages": 2},
        ),
        "grouped_sm100": GroupedGolden(
            grouped_sm100,
            GroupedGemm("masked", 4, 72, 136, 400, scale="rowcol"),
            {"cta_group": 2, "tile_m": 32, "tile_n": 128, "stages": 2},
        ),
    }


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for name, golden in golden_kernels().items():
        path = FOLDER / f"{name}.ptx"
        text = golden.text()
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name}: {'unchanged' if text == old else 'written'}\n")


if __name__ == "__main__":
    main()

"""Swapped operands on tcgen05 take the columns that a tile has, in steps that MMA and TMA can."""

from types import ModuleType

import gemm_runs
import pytest

from ptxgen.emulator import EmulatorDevice
from ptxgen.kernels import gemm_sm100, gemm_sm100_blockscaled
from ptxgen.problem import Gemm

KERNELS = [
    (gemm_sm100, "none"),
    (gemm_sm100_blockscaled, "mx32"),
    (gemm_sm100_blockscaled, "mx128"),
]


@pytest.mark.parametrize(("kernel", "scale"), KERNELS, ids=lambda x: getattr(x, "NAME", x))
@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("rows", [16, 48, 129, 200])
def test_tails_of_bytes_are_exact_in_every_layout(
    rows: int, group: int, layout: str, kernel: ModuleType, scale: str
) -> None:
    stride = 208 if layout[0] == "t" else 0
    problem = Gemm(rows, 256, 144, "e4m3", "e4m3", layout=layout, scale=scale, a_stride=stride)
    config = kernel.default_config(
        problem, swap_ab=True, cta_group=group, cluster_n=group, tile_n=128, stages=2
    )
    assert gemm_runs.is_exact(EmulatorDevice(), problem, config)

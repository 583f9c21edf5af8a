"""Model what masked decoding costs on a B200: our tiles beside those that DeepGEMM publishes.

Run from a checkout: python scripts/masked_model.py
Prints a Markdown table. A model on published rates, no measurement: FP8 operands with a scale for
each 1 x 32 of both; every byte crosses the memory bus once; the Tensor Core works through all
columns that its MMAs have, used or not. DeepGEMM's grouped kernels on SM100 always swap operands,
give a group whole blocks of its alignment (128 rows by default) and pair CTAs along N (csrc/
jit_kernels/heuristics/sm100.hpp, 2026); ours make the last MMA of a group as wide as its rows.
Source of the shapes: DeepGEMM, tests/generators.py, enumerate_m_grouped_masked.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptxgen.devices import GPU_MODELS, GpuModel
from ptxgen.layout import align_up

GROUPS = ((32, 192), (6, 1024), (32, 20), (6, 20))
"""Groups and rows that each is expected to have."""
WEIGHTS = ((6144, 7168), (7168, 3072), (4096, 4096), (4096, 2048))
"""N and K."""
DEEPGEMM_ROWS = 128
"""Alignment of groups, and rows of a block, that DeepGEMM has by default."""
OUR_STEP = 16
"""What the columns of our MMA are a multiple of with a CTA pair."""


def memory_us(gpu: GpuModel, groups: int, rows: int, n: int, k: int) -> float:
    """Microseconds to move all operands once."""
    scale_bytes = (rows + n) * k // 32
    moved = groups * (n * k + rows * k + 2 * rows * n + scale_bytes)
    return moved / (gpu.dram_gbytes_per_s * 1e3)


def tensor_us(gpu: GpuModel, groups: int, columns: int, n: int, k: int) -> float:
    """Microseconds of the Tensor Core for `columns` columns of MMAs in each group."""
    return 2 * groups * columns * n * k / (gpu.fp8_tflops * 1e6)


def main() -> None:
    """Print the table."""
    gpu = GPU_MODELS["B200"]
    lines = [
        "| groups | rows | N | K | columns: DeepGEMM | ours | memory us | MMA us: DeepGEMM "
        "| ours |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for groups, rows in GROUPS:
        for n, k in WEIGHTS:
            columns = (align_up(rows, DEEPGEMM_ROWS), align_up(rows, OUR_STEP))
            times = [tensor_us(gpu, groups, c, n, k) for c in columns]
            lines.append(
                f"| {groups} | {rows} | {n} | {k} | {columns[0]} | {columns[1]} "
                f"| {memory_us(gpu, groups, rows, n, k):.1f} | {times[0]:.1f} | {times[1]:.1f} |"
            )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

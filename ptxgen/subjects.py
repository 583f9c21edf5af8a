"""Subjects: what is checked or stepped through: PTX, its launch, its input, its origin."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from types import ModuleType
from typing import Any

from ptxgen.dtypes import dtype
from ptxgen.emulator.buffers import check_sizes
from ptxgen.errors import EmulationError, PtxError
from ptxgen.grouped_operands import device_sizes, make_grouped_operands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels.grouped_schedule import LEAST_SAVED, shared_tiles
from ptxgen.launch import Launch
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.renderer import Rendered, render
from ptxgen.trial import buffer_contents

SHARED_K_TILES = 2 * LEAST_SAVED
"""k-tiles of a tile that CTAs share."""


@dataclass(frozen=True)
class Subject:
    """One kernel with everything that it runs on."""

    name: str
    ptx: str
    launch: Launch
    data: dict[str, bytes] = field(default_factory=dict)
    """Contents by buffer name; other buffers start as their `init` says."""
    rendered: Rendered | None = None
    """Where the lines come from, if the text is ours."""
    problem: Gemm | None = None
    config: Any = None

    @property
    def is_ours(self) -> bool:
        """Whether one of our templates made it, so that strict rules apply."""
        return self.rendered is not None

    def template_line(self, line: int | None) -> str:
        """The template line behind a PTX line, or ""."""
        return self.rendered.template_line(line) if self.rendered is not None else ""

    def located(self, error: PtxError | EmulationError) -> PtxError | EmulationError:
        """The same error, its message naming the template line, too."""
        return error if self.rendered is None else self.rendered.located(error)


def gemm_subject(
    problem: Gemm,
    config: Any,
    kernel: ModuleType,
    *,
    data: str = "integers",
    seed: int = 0,
    num_sms: int | None = None,
) -> Subject:
    """A GEMM of ours on operands made from `data` and `seed` (see `make_operands`).

    num_sms: SMs to plan a persistent grid for; None = the kernel's default.

    Raises: ConfigError, ArgumentError, LaunchError.
    """
    plan = kernel.plan(problem, config, *(() if num_sms is None else (num_sms,)))
    check_sizes(plan.launch.buffers)
    rendered = render(plan)
    contents = dict(buffer_contents(problem, make_operands(problem, data, seed)))
    return Subject(
        str(config), rendered.text, plan.launch, contents, rendered, problem, config
    )  # fmt: skip


def grouped_subject(
    problem: GroupedGemm, sizes: Any, config: Any, kernel: ModuleType, *,
    rows: Sequence[int] | None = None, data: str = "integers", seed: int = 0,
    num_sms: int | None = None,
) -> Subject:  # fmt: skip
    """A grouped GEMM of ours; sizes: what the device reads; rows: as for `make_grouped_operands`.
    The rest as for `gemm_subject`.

    Raises: ConfigError, ArgumentError, LaunchError.
    """
    plan = kernel.plan(problem, config, *(() if num_sms is None else (num_sms,)))
    check_sizes(plan.launch.buffers)
    rendered = render(plan)
    contents = make_grouped_operands(problem, sizes, data, seed, rows).contents()
    held = {name: x.tobytes() for name, x in contents.items()}
    return Subject(str(config), rendered.text, plan.launch, held, rendered, config=config)


def exercising_subjects(problem: Gemm, config: Any, kernel: ModuleType) -> list[Subject]:
    """Small problems that together take the code of `config` through all of its lines.

    Five tiles in one cluster, so that accumulators, staging buffers and parities wrap; ragged in M
    and K; k-tiles as `_exercising_k` says.
    """
    cluster_m, cluster_n = getattr(config, "cluster_m", 1), getattr(config, "cluster_n", 1)
    split_k = getattr(config, "split_k", 1)
    ragged = max(16 * 8 // dtype(config.a).bits, 16 * 8 // dtype(config.b).bits)
    m = 4 * config.tile_m * cluster_m + (8 if problem.layout[0] == "n" else ragged)
    n = config.tile_n * cluster_n
    num_sms = cluster_m * cluster_n * split_k
    found = []
    for k in _exercising_k(config, ragged, split_k):
        small = replace(problem, m=m, n=n, k=k, a_stride=0, b_stride=0, d_stride=0)
        found.append(gemm_subject(small, config, kernel, num_sms=num_sms))
    return found


def exercising_grouped_subjects(
    problem: GroupedGemm, config: Any, kernel: ModuleType
) -> list[Subject]:
    """The same for grouped kernels: one cluster walks groups that fill a tile of every width that
    the config has main loops for, just not fill it, are empty, span tiles, and end with whole ones;
    N is ragged. With stream_k as many CTAs as then share tiles. kgrouped: groups whose parts of K
    have as many k-tiles as `_exercising_k` says, of a D that is ragged both ways.
    """
    cluster_m, cluster_n = getattr(config, "cluster_m", 1), getattr(config, "cluster_n", 1)
    tile = config.tile_m * cluster_m
    n = config.tile_n * cluster_n + 8
    ragged = 16 * 8 // dtype(config.a).bits
    if problem.mode == "kgrouped":
        parts = _exercising_k(config, ragged)
        k = sum(-(-part // problem.alignment) * problem.alignment for part in parts)
        small = replace(problem, groups=len(parts), m=tile + 8, n=n, k=k)
        return [
            grouped_subject(
                small, device_sizes(small, parts), config, kernel, num_sms=cluster_m * cluster_n
            )
        ]
    widths = getattr(config, "mma_columns", (tile,)) if config.swap_ab else (tile,)
    rows = [count for width in widths for count in (width, width - 3, width)]
    rows += [0, 2 * tile + 5, 2 * tile]
    padded = [-(-count // problem.alignment) * problem.alignment for count in rows]
    m = sum(padded) if problem.mode == "contiguous" else max(rows)
    found = []
    shares = config.stream_k
    for k in (SHARED_K_TILES * config.tile_k,) if shares else _exercising_k(config, ragged):
        small = replace(problem, groups=len(rows), m=m, n=n, k=k)
        sizes = device_sizes(small, rows)
        ctas = _ctas_that_share(small, config, sizes) if shares else cluster_m * cluster_n
        found.append(grouped_subject(small, sizes, config, kernel, num_sms=ctas))
    return found


def _ctas_that_share(problem: GroupedGemm, config: Any, sizes: Any) -> int:
    """The fewest CTAs that share a tile in more than two parts: each has many whole ones, too."""
    segments = problem.segments(sizes)
    return next(
        ctas
        for ctas in count(3)
        if any(len(t.k_parts) > 2 for t in shared_tiles(problem, config, segments, ctas))
    )


def _exercising_k(config: Any, ragged: int, split_k: int = 1) -> tuple[int, ...]:
    """K of problems with an odd number of k-tiles, more than stages and than the main loop has
    written out; an even one; one; and none."""
    written_out = getattr(config, "k_tiles_before_loop", 0)
    whole_tiles = max((config.stages + 1) // 2 * 2, written_out + 1)
    return whole_tiles * config.tile_k * split_k + ragged, 2 * config.tile_k * split_k, ragged, 0

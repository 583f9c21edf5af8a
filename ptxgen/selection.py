"""selection: which kernel and config for this problem on this GPU, and why.

What was measured for the problem comes first: the user's tuning table, then the one that ships for
the GPU. Without a measurement the cost model ranks the legal configs.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from types import ModuleType
from typing import Any

from ptxgen.config_rules import filled_swizzles
from ptxgen.cost_model import FITTED_ARCHS, Cost, Traits, estimate, estimates
from ptxgen.devices import GpuModel, gpu_model
from ptxgen.errors import ArgumentError, ConfigError
from ptxgen.images import config_hash
from ptxgen.kernels import k_parts, kernel_for, target_fields, unit_of
from ptxgen.operand_maps import with_rows
from ptxgen.problem import BLOCK_SCALES, Gemm
from ptxgen.tuning_table import (
    Environment,
    Row,
    TuningTable,
    any_scale_strides,
    problem_key,
    shipped_rows,
)

DEFAULT_GPU = "H200"
BATCH_INVARIANT_M = 256
"""The m for which a default config is made that must not look at m."""
INVARIANT_M = (1, 16, 64, 256, 1024, 4096)
"""Numbers of rows among which one way of summing K is chosen for all."""
Sums = tuple[tuple[tuple[int, int], ...], str]
"""What the bits of a row of D depend on beside the operands: the parts of K, and the Tensor Core's
instruction. Tiles, clusters and stages leave them as they are."""
STEP_FIELDS = ("tile_m", "cluster_m", "cluster_n", "warpgroups", "cta_group", "accumulators",
               "scheduler", "warps_m", "warps_n")  # fmt: skip
"""Fields of the kernels' Configs of which neighbours differ in one."""
OVERLAPPING_STORES = (("tma", "deferred"), ("global", "deferred_global"))
"""Ways of storing D that serve the same problems."""
ROWS_TRIED = 8
"""Rows of a table whose kernel text is compared; the fastest usable one is taken if none fits."""


class TuningWarning(UserWarning):
    """The user's tuning table cannot be used; selection goes on without it."""


@dataclass(frozen=True)
class Ranked:
    """A legal config with its predicted cost."""

    config: Any
    cost: Cost


@dataclass(frozen=True)
class Refused:
    """A config that cannot serve the problem, and why."""

    config: Any
    reason: str


@dataclass(frozen=True)
class Choice:
    """The config that was chosen for a problem."""

    kernel: str
    """Name of the kernel, a key of KERNELS."""
    config: Any
    source: str
    """Who chose: user table, shipped table (a shipped row of the same problem with scales that are
    laid out otherwise comes after one of the problem itself), model, default, or caller."""
    why: str
    """One sentence."""
    cost: Cost
    """What the model predicts for it."""
    seconds: float | None
    """What was measured for it; None if the model chose."""


@dataclass(frozen=True)
class Explanation:
    """Why a config was chosen, and why the others were not."""

    choice: Choice
    ranked: tuple[Ranked, ...]
    """All legal configs, the best predicted first."""
    refused: tuple[Refused, ...]


def model_of(device: str, num_sms: int | None = None) -> GpuModel:
    """The GPU model called `device`; with another number of SMs, its rates scaled to that.

    Raises: ConfigError if no model of that name is known.
    """
    model = gpu_model(device)
    if num_sms is None or num_sms == model.num_sms:
        return model
    part = num_sms / model.num_sms
    return replace(
        model,
        num_sms=num_sms,
        fp8_tflops=model.fp8_tflops * part,
        bf16_tflops=model.bf16_tflops * part,
        tf32_tflops=model.tf32_tflops * part,
        fp4_tflops=model.fp4_tflops * part,
        source=f"{model.source}, scaled to {num_sms} SMs",
    )


def known_model(device: str, num_sms: int, arch: str) -> GpuModel | None:
    """The same of a GPU of `arch`; None if we know no model of that name and arch."""
    try:
        model = model_of(device, num_sms)
    except ConfigError:
        return None
    return model if model.arch == arch else None


def choose(
    problem: Gemm, device: GpuModel | str = DEFAULT_GPU, *, batch_invariant: bool = False
) -> Any:
    """The config for `problem` on `device`: a Config of the kernel that serves it.

    batch_invariant: one that sums K in parts chosen without looking at m, so that the bits of a row
    of D do not depend on m.

    Raises: ConfigError if no kernel or config serves the problem.
    """
    return choice(problem, device, batch_invariant=batch_invariant).config


def choice(
    problem: Gemm,
    device: GpuModel | str = DEFAULT_GPU,
    *,
    environment: Environment | None = None,
    batch_invariant: bool = False,
) -> Choice:
    """As `choose`, with who chose and why. Remembered for each problem; see `forget`.

    environment: where it will run, if known: rows measured elsewhere are then taken only if none
    was measured there.

    Raises: ConfigError if no kernel or config serves the problem.
    """
    gpu = gpu_model(device) if isinstance(device, str) else device
    sums = None
    if batch_invariant:
        sums = invariant_sums(with_rows(problem, BATCH_INVARIANT_M), gpu)
    return _choice(problem, gpu, environment or Environment(gpu.name), sums)


def sums_of(config: Any, problem: Gemm) -> Sums:
    """How `config` sums K."""
    return k_parts(config, problem), unit_of(config)


@lru_cache(maxsize=1024)
def invariant_sums(problem: Gemm, gpu: GpuModel) -> Sums:
    """The way of summing K that costs the least, as the model sees it, over all INVARIANT_M.

    That is the least product over them of the time with the best config that sums so, over the time
    with the best of all. It looks at no table, since tables have some m and others not.

    Raises: ConfigError if no kernel or config serves the problem.
    """
    if gpu.arch not in FITTED_ARCHS:
        return sums_of(_default(problem, gpu), problem)
    excess: dict[Sums, list[float]] = {}
    for m in INVARIANT_M:
        best: dict[Sums, float] = {}
        for entry in rank(with_rows(problem, m), gpu):
            best.setdefault(sums_of(entry.config, problem), entry.cost.total)
        for sums, seconds in best.items():
            excess.setdefault(sums, []).append(seconds / min(best.values()))
    for_all = {sums: prod(x) for sums, x in excess.items() if len(x) == len(INVARIANT_M)}
    if not for_all:
        raise ConfigError(
            f"no way of summing K serves every M with {problem}; try batch_invariant=False"
        )
    return min(for_all, key=lambda sums: for_all[sums])


def _default(problem: Gemm, gpu: GpuModel) -> Any:
    """The default config of the kernel that serves `problem`."""
    module = kernel_for(problem, gpu.arch)
    return module.default_config(problem, **target_fields(module, gpu.arch))


def given(problem: Gemm, config: Any, gpu: GpuModel) -> Choice:
    """A config that the caller chose, as a Choice.

    Raises: ConfigError if it is illegal or does not serve the problem.
    """
    module = kernel_for(problem, gpu.arch)
    module.plan(problem, config, gpu.num_sms)
    return Choice(
        module.NAME, config, "caller", "given by the caller", estimate(problem, config, gpu), None
    )


def forget() -> None:
    """Drop remembered choices, after the tuning table has changed."""
    _choice.cache_clear()


def rank(problem: Gemm, gpu: GpuModel) -> list[Ranked]:
    """All legal configs of the kernel that serves `problem`, the best predicted first.

    Raises: ConfigError if no kernel serves it.
    """
    return _rank(problem, gpu)[0]


def explain(
    problem: Gemm, device: GpuModel | str = DEFAULT_GPU, environment: Environment | None = None
) -> Explanation:
    """Why `choose` takes what it takes.

    Raises: ConfigError if no kernel or config serves the problem.
    """
    gpu = gpu_model(device) if isinstance(device, str) else device
    ranked, refused = _rank(problem, gpu)
    module = kernel_for(problem, gpu.arch)
    filled = filled_swizzles(problem.a, problem.k)
    narrow = [s for s in getattr(module, "SWIZZLES", ()) if s not in filled]
    why = f"legal, but K={problem.k} fills wider rows of shared memory; try swizzle={filled[-1]}"
    for config, reason in _grid(module, problem, gpu, narrow) if narrow else ():
        refused.append(Refused(config, reason or why))
    return Explanation(choice(problem, gpu, environment=environment), tuple(ranked), tuple(refused))


def neighbours(config: Any, legal: list[Any]) -> list[Any]:
    """Legal configs one step away: one choice other, tile_n up to 32 narrower or wider, other
    stages, another way to store D, or more warpgroups with as many rows each."""
    found = []
    for other in legal:
        if other.swizzle_bytes != config.swizzle_bytes:
            continue
        steps = [
            name
            for name in STEP_FIELDS
            if getattr(other, name, None) != getattr(config, name, None)
        ]
        if {"cluster_m", "cluster_n"} <= set(steps):
            steps.remove("cluster_n")  # 2x1 and 1x2 are one step apart
        if {"tile_m", "warpgroups"} <= set(steps) and _rows_each(other) == _rows_each(config):
            steps.remove("warpgroups")
        near = abs(other.tile_n - config.tile_n)
        if len(steps) + bool(near) == 1 and near <= 32:
            found.append(other)
    changes: list[dict[str, Any]] = [{"stages": config.stages + d} for d in (-2, -1, 1, 2, 4)]
    for stores in OVERLAPPING_STORES:
        if getattr(config, "store", None) in stores:
            changes += [{"store": s} for s in stores if s != config.store]
    for change in changes:
        other = replace(config, **change)
        try:
            other.check()
        except ConfigError:
            continue
        if other not in found:
            found.append(other)
    return found


def _rows_each(config: Any) -> float:
    """Rows of the tile for each warpgroup."""
    return float(config.tile_m / config.warpgroups)


@lru_cache(maxsize=4096)
def _choice(problem: Gemm, gpu: GpuModel, environment: Environment, sums: Sums | None) -> Choice:
    """sums: how the config must sum K; None = in any way."""
    module = kernel_for(problem, gpu.arch)
    for source, rows in _sources(problem, gpu):
        found = _usable(module, problem, rows, environment, sums)
        if found is None:
            continue
        row, config, differences = found
        microseconds = (row.seconds or 0.0) * 1e6
        where = f" with another {', '.join(differences)}" if differences else ""
        return Choice(
            module.NAME, config, source,
            f"measured: {microseconds:.2f} us on {row.device}{where}, the fastest in the {source}",
            estimate(problem, config, gpu), row.seconds,
        )  # fmt: skip
    if gpu.arch not in FITTED_ARCHS:
        config = _default(with_rows(problem, BATCH_INVARIANT_M) if sums else problem, gpu)
        return Choice(
            module.NAME, config, "default",
            f"the default of {module.NAME}: the model was fitted to {', '.join(FITTED_ARCHS)}, and "
            f"nothing was measured for this problem on {gpu.name}",
            estimate(problem, config, gpu), None,
        )  # fmt: skip
    ranked, refused = _rank(problem, gpu)
    if not ranked:
        raise ConfigError(
            f"no config of {module.NAME} serves {problem}; the first of {len(refused)} refusals: "
            f"{refused[0].reason if refused else 'none was tried; try another problem'}"
        )
    if sums:
        ranked = [entry for entry in ranked if sums_of(entry.config, problem) == sums]
    if not ranked:
        raise ConfigError(
            f"no config sums K in the way that all M with {problem} share; try "
            "batch_invariant=False"
        )
    best = ranked[0]
    return Choice(
        module.NAME, best.config, "model",
        f"predicted: {best.cost.total * 1e6:.2f} us, the least of {len(ranked)} legal configs, "
        f"bound by {best.cost.bound}; nothing was measured for this problem on {gpu.name}",
        best.cost, None,
    )  # fmt: skip


def _sources(problem: Gemm, gpu: GpuModel) -> Iterator[tuple[str, list[Row]]]:
    """(name, rows of the problem, the fastest first) of each table."""
    try:
        table = TuningTable.existing()
    except (ArgumentError, ImportError) as error:
        warnings.warn(f"going on without a tuning table: {error}", TuningWarning, stacklevel=1)
        table = None
    if table is not None:
        yield "user table", table.rows(problem, gpu.name)
    key = problem_key(problem)
    rows = sorted(shipped_rows(gpu.name), key=lambda row: (row.seconds is None, row.seconds))
    yield "shipped table", [row for row in rows if row.problem == key]
    if problem.scale in BLOCK_SCALES:
        like = any_scale_strides(key)
        rest = (row for row in rows if row.problem != key)
        others = [row for row in rest if any_scale_strides(row.problem) == like]
        yield "shipped table, where scales are laid out otherwise", others


def _usable(
    module: ModuleType, problem: Gemm, rows: list[Row], environment: Environment,
    sums: Sums | None,
) -> tuple[Row, Any, tuple[str, ...]] | None:  # fmt: skip
    """The fastest row that was measured with this kernel text in this environment, else the
    fastest whose config is still legal; with what is different about it."""
    fallback = None
    tried = 0
    for row in rows:
        if row.seconds is None or row.kernel != module.NAME or tried == ROWS_TRIED:
            continue
        config = _config(module, problem, row)
        if config is None or (sums and sums_of(config, problem) != sums):
            continue
        tried += 1
        differences = row.differences(environment)
        if config_hash(module.NAME, config) != row.text_hash:
            differences = ("kernel text", *differences)
        if not differences:
            return row, config, ()
        fallback = fallback or (row, config, differences)
    return fallback


def _config(module: ModuleType, problem: Gemm, row: Row) -> Any:
    """The config of a row, or None if it is no longer one that serves the problem."""
    try:
        config = module.Config(**row.config_fields())
        module.plan(problem, config)
    except (TypeError, ConfigError):  # TypeError: a field that this Config does not have
        return None
    return config


def _rank(problem: Gemm, gpu: GpuModel) -> tuple[list[Ranked], list[Refused]]:
    """Configs whose swizzle K fills: the legal ones, the best predicted first, and the others."""
    module = kernel_for(problem, gpu.arch)
    legal, refused = [], []
    for config, reason in _grid(module, problem, gpu, filled_swizzles(problem.a, problem.k)):
        if reason is None:
            legal.append(config)
        else:
            refused.append(Refused(config, reason))
    costs = estimates(problem, Traits.of(legal), gpu) if legal else []
    ranked = [Ranked(config, cost) for config, cost in zip(legal, costs, strict=True)]
    ranked.sort(key=_preference)
    return ranked, refused


def _preference(entry: Ranked) -> tuple[float, int, float, str]:
    """What configs are ranked by. Where memory is the limit many take equally long: then those that
    leave K whole come first, and those that have the Tensor Core busy for the least time."""
    cost, split = entry.cost, getattr(entry.config, "split_k", 1)
    return cost.total, split, cost.issue + cost.wave, str(entry.config)


def _grid(
    module: ModuleType, problem: Gemm, gpu: GpuModel, swizzles: Sequence[int]
) -> Iterator[tuple[Any, str | None]]:
    """The kernel's configs for the problem with None or why they are refused.

    swizzles: those of interest, if the kernel has a choice.
    """
    some = {"swizzles": swizzles} if hasattr(module, "SWIZZLES") else {}
    found: Iterator[tuple[Any, str | None]] = module.configs(
        problem, **target_fields(module, gpu.arch), **some
    )
    return found

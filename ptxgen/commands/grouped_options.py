"""The options of grouped problems: how groups lie in memory, and how many rows each has."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, TypeVar

import click

from ptxgen.arch import arch
from ptxgen.commands.advice import with_proven_hint
from ptxgen.commands.choice import chosen_model
from ptxgen.commands.option_lists import with_options
from ptxgen.commands.options import (
    CONFIG_OPTIONS,
    EPILOGUE_OPTIONS,
    config_fields,
    option_of,
    refuse_beside_chosen,
    refuse_field,
    refuse_given,
)
from ptxgen.devices import GpuModel, gpu_model
from ptxgen.errors import ArgumentError, ConfigError
from ptxgen.grouped_problem import INDEXES, MAX_GROUPS, MODES, GroupedGemm, group_starts
from ptxgen.kernels import grouped_kernel_for
from ptxgen.kernels.grouped_config import LOOPS
from ptxgen.problem import BLOCK_SCALES, MAX_EXTENT

F = TypeVar("F", bound=Callable[..., Any])

K_ALIGNMENT = 16
"""Where parts of K start unless told: 16 bytes of 8-bit operands, which TMA needs, or more."""
GROUPED = "grouped"
"""The target that these options describe."""
RANGES = {
    "groups": range(1, MAX_GROUPS + 1),
    "alignment": range(1, MAX_EXTENT + 1),
    "expected_rows": range(MAX_EXTENT + 1),
}
"""Numbers that are checked before anything is made of them, and what they may be."""

_GROUPED = (
    click.option("--mode", type=click.Choice(MODES), default="masked", show_default=True,
                 help="How groups lie in memory."),
    click.option("--groups", type=int, default=4, show_default=True, help="Number of groups."),
    click.option("--rows", metavar="N,N,...",
                 help="Rows of each group, or one number for all (kgrouped: K of each). "
                 "[default: --max-m each; contiguous: --m / groups; kgrouped: --k / groups]"),
    click.option("--max-m", type=int,
                 help="Rows that a group has room for (masked, batched). "
                 "[default: the most of --rows, else --m]"),
    click.option("--index", type=click.Choice(INDEXES), default="offsets", show_default=True,
                 help="How a contiguous problem describes its groups on the device."),
    click.option("--alignment", type=int,
                 help="Groups start at multiples of this (index ends and rows, kgrouped). "
                 "[default: 1; kgrouped: 16]"),
    click.option("--expected-rows", type=int,
                 help="Rows per group that the choice of a config, and --swap-ab auto, reckon "
                 "with. [default: the mean of --rows; --config chosen: as a call without them]"),
    click.option("--token-step", type=int,
                 help="Swapped: one main loop for each multiple of this many rows."),
    click.option("--loop", type=click.Choice(LOOPS),
                 help="Main loop with promotion."),
    click.option("--stream-k", type=click.Choice(["on", "off"]),
                 help="Whether CTAs share the tiles of the last wave along K. A row's bits then "
                 "depend on the rows of other groups and on the number of SMs. [default: off]"),
)  # fmt: skip


def grouped_options(command: F) -> F:
    """Add the options that describe groups."""
    return with_options(command, _GROUPED)


@dataclass(frozen=True)
class GroupedSelection:
    """What the options say."""

    problem: GroupedGemm
    kernel: ModuleType
    """Module of ptxgen.kernels that serves the arch."""
    rows: tuple[int, ...]
    """Rows of each group (kgrouped: K)."""
    target: str
    """The arch."""
    swap_ab: str
    """auto, on or off."""
    chosen: dict[str, int | str | bool]
    """Fields of the kernel's Config that were given, beside swap_ab."""
    expected_rows: int | None
    """Rows per group that the choice reckons with; None = as a call that is not told."""
    gpu: GpuModel
    """The GPU model that the choice is made for."""

    @property
    def sizes(self) -> Any:
        """The array that the device reads.

        Raises: ArgumentError if the rows do not fit.
        """
        from ptxgen.grouped_operands import device_sizes

        return device_sizes(self.problem, self.rows)

    @property
    def sizes_contents(self) -> dict[str, bytes]:
        """The same by the name of its buffer, if the mode has one."""
        return {} if self.sizes is None else {"sizes": self.sizes.tobytes()}

    @cached_property
    def config(self) -> Any:
        """The config: what was given, and the best of the rest.

        Raises: ConfigError if no legal config has what was given.
        """
        try:
            return self._made(self.chosen)
        except ConfigError as error:
            raise with_proven_hint(error, self._made, self.chosen, option_of) from error

    def _made(self, chosen: Mapping[str, Any]) -> Any:
        """The config with some fields, which serves the problem.

        Raises: ConfigError.
        """
        from ptxgen.swap_selection import config_for

        config = config_for(
            self.problem, self.expected_rows, self.target, self.gpu, self.swap_ab, chosen
        )
        self.kernel.plan(self.problem, config)
        return config

    @property
    def described(self) -> dict[str, object]:
        """What a report in JSON says of the problem beyond the config."""
        rows, swapped = list(self.rows), self.config.swap_ab
        return {"mode": self.problem.mode, "rows": rows, "swap_ab": swapped}

    @property
    def shown(self) -> dict[str, object]:
        """The same for people."""
        most = self.problem.m if self.problem.mode == "masked" else max(self.rows)
        what = "K" if self.problem.mode == "kgrouped" else "rows"
        return {
            "operands": "swapped: B on the MMA's rows" if self.config.swap_ab else "not swapped",
            f"{what} of the groups": ", ".join(
                f"{rows} (counts as {most})" if rows > most else str(rows) for rows in self.rows
            ),
        }


def select_grouped(values: dict[str, Any], device: Any = None) -> GroupedSelection:
    """The problem and config that a command's options describe, for `device` if it is a GPU.

    Raises: UsageError if an option is among them that groups do not have; ArgumentError,
    ProblemError, ConfigError.
    """
    why = (
        "groups have layout nt, f32 scales, no epilogue but D = alpha * sums; try gemm, or without"
    )
    refuse_given(("layout", "scale_format", *EPILOGUE_OPTIONS), why)
    refuse_given(("dependent_launch",), "grouped kernels have none; try gemm, or without")
    _refuse_ignored(values)
    _check_ranges(values)
    mode, groups = values["mode"], values["groups"]
    alignment = values["alignment"] or (K_ALIGNMENT if mode == "kgrouped" else 1)
    rows = _rows(values["rows"], groups)
    m, k = values["m"], values["k"]
    if mode in ("masked", "batched"):
        m = values["max_m"] if values["max_m"] is not None else max(rows or (m,))
        rows = rows or (m,) * groups
    elif mode == "kgrouped":
        each = max(alignment, k // max(groups, 1) // alignment * alignment)
        rows = rows or (each,) * groups
        k = group_starts(rows, alignment)[1]
    else:
        each, more = divmod(m, max(groups, 1))
        rows = rows or (each + 1,) * more + (each,) * (groups - more)
        m = sum(-(-r // alignment) * alignment for r in rows)
    problem = GroupedGemm(
        mode, groups, m, values["n"], k, values["a"], values["b"] or values["a"],
        "f32" if mode == "kgrouped" else values["d"], values["scale"],
        values["accumulate"], index=values["index"], alignment=alignment, alpha=values["alpha"],
        a_stride=values["a_stride"], b_stride=values["b_stride"], d_stride=values["d_stride"],
    )  # fmt: skip
    if mode == "batched":
        from ptxgen.grouped_operands import device_sizes

        device_sizes(problem, rows)  # refuses rows that are not those of all groups
    target = arch(values["arch"]).name
    kernel = grouped_kernel_for(problem, target)
    chosen = config_fields(values)
    for name in ("token_step", "loop"):
        if values[name] is not None:
            chosen[name] = values[name]
    if values["stream_k"] is not None:
        chosen["stream_k"] = values["stream_k"] == "on"
    swap_ab = chosen.pop("swap_ab", None)
    known = set(kernel.Config.__dataclass_fields__)
    for name in chosen:
        if name not in known:
            refuse_field(kernel, target, name, chosen)
    if swap_ab is None and "token_step" in chosen:
        swap_ab = True  # it has no meaning otherwise
    swap = "auto" if swap_ab is None else "on" if swap_ab else "off"
    if kernel.UNIT != "wgmma":
        why = f"{kernel.NAME} swaps unless told, with the same tile for any rows; try without"
        refuse_given(("expected_rows", "gpu"), why)
    expected = values["expected_rows"]
    if values["config_choice"] == "chosen":
        names = {*CONFIG_OPTIONS, "token_step", "loop", "stream_k"} - {"swap_ab"}
        refuse_beside_chosen(names)
    elif expected is None:
        expected = -(-sum(rows) // len(rows))
    from ptxgen.swap_selection import DEFAULT_GPU

    gpu = chosen_model(values["gpu"], target, device) or gpu_model(DEFAULT_GPU)
    return GroupedSelection(problem, kernel, rows, target, swap, chosen, expected, gpu)


def _refuse_ignored(values: dict[str, Any]) -> None:
    """Refuse options that the mode, or another option, leaves without a meaning.

    Raises: UsageError.
    """
    mode = values["mode"]
    if mode != "contiguous":
        refuse_given(("index",), f"mode={mode} has no index; try --mode contiguous")
    if mode in ("masked", "batched") or (mode == "contiguous" and values["index"] == "offsets"):
        refuse_given(
            ("alignment",), "groups lie wherever sizes say; try --index ends, or --mode kgrouped"
        )
    if mode in ("contiguous", "kgrouped"):
        refuse_given(("max_m",), f"groups of mode={mode} have no room of their own; try --rows")
    if mode == "kgrouped":
        if values["d"] != "f32":
            refuse_given(("d",), "kgrouped adds to D in float32; try --d f32")
        refuse_given(
            ("k",) if values["rows"] else (), "--rows says the K of each group; try without"
        )
    elif values["rows"] or values["max_m"] is not None:
        refuse_given(("m",), "--rows and --max-m say what groups hold; try without it")
    if values["scale"] in BLOCK_SCALES and values["accumulate"] == "fast":
        refuse_given(("accumulate",), "block scales are promoted; try --accumulate promoted")
    if values["swap_ab"] == "off":
        refuse_given(("token_step",), "only swapped operands have token steps; try --swap-ab on")


def _check_ranges(values: dict[str, Any]) -> None:
    """Refuse numbers that no problem has.

    Raises: ArgumentError.
    """
    for name, allowed in RANGES.items():
        value = values[name]
        if value is not None and value not in allowed:
            least, most = allowed[0], allowed[-1]
            raise ArgumentError(
                f"{option_of(name)} must be from {least} to {most}, got {value}; try "
                f"{least if value < least else most}"
            )


def _rows(text: str | None, groups: int) -> tuple[int, ...]:
    """Rows of each group; none if they are not given.

    Raises: ArgumentError.
    """
    if text is None:
        return ()
    parts = text.split(",")
    if not all(re.fullmatch(r"\s*\d{1,10}\s*", p) and int(p) <= MAX_EXTENT for p in parts):
        raise ArgumentError(
            f"--rows must be numbers up to {MAX_EXTENT} joined by commas, got {text!r}; try "
            "3,0,17,8"
        )
    numbers = tuple(int(part) for part in parts)
    numbers = numbers * groups if len(numbers) == 1 else numbers
    if len(numbers) != groups:
        raise ArgumentError(
            f"--rows must have one number for each of {groups} groups, or one for all, got "
            f"{len(numbers)}; try --groups {len(numbers)}"
        )
    return numbers

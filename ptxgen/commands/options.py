"""The options that all commands share: which problem, and which config."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import click

from ptxgen.arch import ARCHS, arch
from ptxgen.commands.advice import with_proven_hint
from ptxgen.commands.choice import chosen_model
from ptxgen.commands.option_lists import with_options
from ptxgen.devices import GpuModel
from ptxgen.epilogue import ACTIVATIONS, ADDENDS, BIASES, D_SCALES, Epilogue
from ptxgen.errors import ConfigError
from ptxgen.kernels import grouped_sm90, kernel_for, passed_over, target_fields
from ptxgen.problem import ACCUMULATES, LAYOUTS, OUTPUTS, PAIRS, SCALE_FORMATS, SCALES, Gemm

F = TypeVar("F", bound=Callable[..., Any])

INPUTS = tuple(name for pair in PAIRS for name in pair)
"""Formats of A and B."""
TCGEN05_KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
_OPTIONS = {
    "tile_m": "--tile", "tile_n": "--tile", "tile_k": "--tile",
    "cluster_m": "--cluster", "cluster_n": "--cluster", "swizzle_bytes": "--swizzle",
    "kind": "--mma-kind",
}  # fmt: skip
"""Field of a Config -> the option that gives it; where it is not --FIELD with dashes."""
GROUP_OPTIONS = (
    "mode", "groups", "rows", "max_m", "index", "alignment", "expected_rows", "token_step", "loop",
    "stream_k",
)  # fmt: skip
"""What describes groups only, by the names of parameters."""
EPILOGUE_OPTIONS = tuple(f.name for f in fields(Epilogue))
CONFIG_OPTIONS = (
    "tile", "stages", "cluster", "warpgroups", "cta_group", "swap_ab", "scheduler", "swizzle",
    "store", "split_k", "kind",
)  # fmt: skip
"""What decides fields of a Config, by the names of parameters."""
TARGETS = ("gemm",)
"""Problems that a command takes by name."""


class SizeList(click.ParamType[tuple[int, ...]]):
    """Sizes joined by x, such as 128x256x64."""

    name = "sizes"

    def __init__(self, *names: str, required: int) -> None:
        self.names, self.required = names, required

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        optional = "".join(f"[x{n.upper()}]" for n in self.names[self.required :])
        return "x".join(n.upper() for n in self.names[: self.required]) + optional

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = str(value).split("x")
        if not (
            self.required <= len(parts) <= len(self.names)
            and all(re.fullmatch(r"\d+", part) for part in parts)
        ):
            self.fail(
                f"{value!r} must be {self.required} to {len(self.names)} integers joined by x; try "
                f"{'x'.join(['128'] * self.required) if self.required > 1 else 2}"
            )
        return tuple(int(part) for part in parts)


_PROBLEM = (
    click.option("--m", type=int, default=256, show_default=True, help="Rows of D."),
    click.option("--n", type=int, default=256, show_default=True, help="Columns of D."),
    click.option("--k", type=int, default=512, show_default=True, help="Length of the sums."),
    click.option("--a", type=click.Choice(INPUTS), default="bf16", show_default=True,
                 help="Format of A."),
    click.option("--b", type=click.Choice(INPUTS), help="Format of B [default: that of A]."),
    click.option("--d", type=click.Choice(OUTPUTS), default="bf16", show_default=True,
                 help="Format of D."),
    click.option("--layout", type=click.Choice(LAYOUTS), default="nt", show_default=True,
                 help="How A and B are stored. nt: A [M,K], B [N,K]; nn: A [M,K], B [K,N]; tn: "
                 "A [K,M], B [K,N]; tt: A [K,M], B [N,K]."),
    click.option("--scale", type=click.Choice(SCALES), default="none", show_default=True,
                 help="Scale factors of A and B."),
    click.option("--scale-format", type=click.Choice(list(SCALE_FORMATS)), default="f32",
                 show_default=True,
                 help="Format of block scales. ue8m0x4: four exponents in one int32."),
    click.option("--accumulate", type=click.Choice(["auto", *ACCUMULATES]), default="auto",
                 show_default=True,
                 help="fast: in the tensor core; promoted: FP32 sums of 128-K partial sums; "
                 "auto: promoted for --scale block and group, else fast."),
    click.option("--alpha", type=float, default=1.0, show_default=True, help="Factor of D."),
    click.option("--c", type=click.Choice(["none", *ADDENDS]), default="none", show_default=True,
                 help="Format of C, which is added; none: there is no C."),
    click.option("--beta", type=float, default=1.0, show_default=True, help="Factor of C."),
    click.option("--bias", type=click.Choice(BIASES), default="none", show_default=True,
                 help="A vector that is added: one element for each column of N, or row of M."),
    click.option("--bias-dtype", type=click.Choice(ADDENDS), default="f32", show_default=True,
                 help="Format of the bias."),
    click.option("--activation", type=click.Choice(ACTIVATIONS), default="none", show_default=True,
                 help="Applied to the sums. swiglu: 8 gates and 8 values in turns make 8 columns."),
    click.option("--amax", is_flag=True, help="Keep the largest magnitude of D."),
    click.option("--d-scale", type=click.Choice(D_SCALES), default="none", show_default=True,
                 help="Scale of an 8-bit D: given, or made for each row and 128 columns."),
    click.option("--a-stride", type=int, default=0, help="Elements between rows of A; 0 is dense."),
    click.option("--b-stride", type=int, default=0, help="Elements between rows of B; 0 is dense."),
    click.option("--d-stride", type=int, default=0, help="Elements between rows of D; 0 is dense."),
)  # fmt: skip

_CONFIG = (
    click.option("--arch", default="sm_90a", show_default=True,
                 help=f"Target: {', '.join(ARCHS)}."),
    click.option("--tile", type=SizeList("m", "n", "k", required=2),
                 help="The part of the problem that one CTA holds."),
    click.option("--stages", type=int, help="Slots of the ring in shared memory."),
    click.option("--cluster", type=SizeList("m", "n", required=1),
                 help="CTAs that share tiles, along M and along N."),
    click.option("--warpgroups", type=int, help="Consumer warpgroups."),
    click.option("--cta-group", type=int, help="CTAs that work on one tcgen05 MMA: 1 or 2."),
    click.option("--swap-ab", type=click.Choice(["auto", "on", "off"]), default="auto",
                 show_default=True, help="Whether B takes the MMA's rows and A its columns."),
    click.option("--scheduler", type=click.Choice(["static", "clc"]),
                 help="How CTAs of tcgen05 kernels find tiles; clc: cluster launch control."),
    click.option("--swizzle", type=click.Choice(["auto", "none", "32", "64", "128"]),
                 default="auto", show_default=True, help="Swizzle of A and B in shared memory."),
    click.option("--store",
                 type=click.Choice(["auto", "tma", "deferred", "global", "deferred_global"]),
                 default="auto", show_default=True,
                 help="How D is stored; deferred: during the next tile's main loop."),
    click.option("--split-k", type=int, help="CTAs of a cluster that share one tile's K."),
)  # fmt: skip

_MEASUREMENT = (
    click.option("--set", "set_names", multiple=True, metavar="NAME",
                 help="A named set of shapes; may be given several times. "
                 "[default: --m, --n, --k]"),
    click.option("--kind", "kind_names", multiple=True, metavar="NAME",
                 help="Formats, scales and accumulation of the sets. [default: fp8-tensor]"),
    click.option("--executor", default="threads", show_default=True, metavar="KIND[:N]",
                 help="Where kernels are assembled: threads:N, processes:N or MODULE:ATTRIBUTE."),
    click.option("--gpu", "gpu_index", type=click.IntRange(0), help="Which GPU."),
)  # fmt: skip


def problem_options(command: F) -> F:
    """Add the options that describe a problem."""
    return with_options(command, _PROBLEM)


def config_options(command: F) -> F:
    """Add the options that choose a config. What is left out is chosen for the problem."""
    return _config_options(command, "--mma-kind", "--kind")


def measured_config_options(command: F) -> F:
    """The same for commands whose --kind says what is measured."""
    return _config_options(command, "--mma-kind")


def _config_options(command: F, *kind_names: str) -> F:
    kind = click.option(
        *kind_names, "kind", type=click.Choice(["auto", *TCGEN05_KINDS]), default="auto",
        show_default=True,
        help="Kind of MMA on sm_100 and sm_120 targets; auto: what the formats call for.",
    )  # fmt: skip
    return with_options(command, (*_CONFIG, kind))


def measurement_options(command: F) -> F:
    """Add the options that say what is measured, and where."""
    return with_options(command, _MEASUREMENT)


def kinds_of(set_names: tuple[str, ...], kind_names: tuple[str, ...]) -> list[Any]:
    """The kinds in which the shapes of sets are measured; none without a set.

    Raises: UsageError if kinds are given without a set; ArgumentError if there is no such kind.
    """
    from ptxgen.benchmark.sets import kind

    if kind_names and not set_names:
        raise click.UsageError("--kind belongs to a --set; try --a, --scale, ...")
    return [kind(name) for name in kind_names or ("fp8-tensor",)] if set_names else []


def refuse_options_of_problems(values: dict[str, Any], *allowed: str) -> None:
    """Refuse options of a problem or config beside a FILE, which they would not change.

    values: what those options say; allowed: names of those that a FILE takes, too.

    Raises: UsageError that names them.
    """
    refuse_given(values.keys() - set(allowed), "a FILE takes no options of a problem; try without")


def refuse_given(names: Collection[str], why: str) -> None:
    """Refuse options of the running command that were given but would be ignored.

    Raises: UsageError that names them.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return  # no command line: nothing was given
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) is not click.core.ParameterSource.DEFAULT
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: {why}")


def refuse_beside_chosen(names: Collection[str]) -> None:
    """Refuse options of a config that a call chooses.

    Raises: UsageError that names them.
    """
    refuse_given(names, "--config chosen takes what a call takes; try --config default, or without")


@dataclass(frozen=True)
class Selection:
    """What the options say."""

    problem: Gemm
    kernel: ModuleType
    """Module of ptxgen.kernels that serves the arch."""
    chosen: dict[str, int | str]
    """Fields of the kernel's Config that were given."""
    fixed: dict[str, str]
    """Fields of it that the arch decides."""
    gpu: GpuModel | None = None
    """The GPU model on which a call chooses the config; None = the default config."""
    dependent: bool = False
    """Whether it is launched as a dependent kernel."""

    @property
    def config(self) -> Any:
        """The config: what a call chooses; or what was given, and the rest by rule.

        Raises: ConfigError if no legal config has what was given.
        """
        if self.gpu is not None:
            from ptxgen.selection import choose

            config = choose(self.problem, self.gpu)
        else:
            try:
                config = self._made(self.chosen)
            except ConfigError as error:
                raise with_proven_hint(error, self._made, self.chosen, option_of) from error
        return config.as_dependent() if self.dependent else config

    def _made(self, chosen: Mapping[str, Any]) -> Any:
        """The config with some fields, which serves the problem.

        Raises: ConfigError.
        """
        config = self.kernel.default_config(self.problem, **self.fixed, **chosen)
        self.kernel.plan(self.problem, config)
        return config

    @property
    def described(self) -> dict[str, object]:
        """What a report in JSON says of the problem beyond the config."""
        return {}

    @property
    def shown(self) -> dict[str, object]:
        """The same for people."""
        return {}


def epilogue_of(values: dict[str, Any]) -> Epilogue:
    """The epilogue that a command's options describe.

    Raises: ProblemError; UsageError for an option of what is not asked for.
    """
    if values["c"] == "none":
        refuse_given(("beta",), "is the factor of C; try --c")
    if values["bias"] == "none":
        refuse_given(("bias_dtype",), "is the format of a bias; try --bias")
    return Epilogue(**{f.name: values[f.name] for f in fields(Epilogue) if f.name in values})


def select(values: dict[str, Any], device: Any = None) -> Selection:
    """The problem and config that a command's options describe, for `device` if it is a GPU.

    Raises: UsageError if options of groups are among them; ProblemError, ConfigError.
    """
    refuse_given(GROUP_OPTIONS, "a gemm has no groups; try grouped")
    names = {f.name for f in fields(Gemm)}
    described = {name: value for name, value in values.items() if name in names}
    described["b"] = values["b"] or values["a"]
    described["epilogue"] = epilogue_of(values)
    problem = Gemm(**described)
    target = arch(values["arch"]).name
    kernel = kernel_for(problem, target)
    chosen = config_fields(values)
    if "swap_ab" in chosen and target in grouped_sm90.TARGETS:
        # The dense kernels have no swapped form; a dense problem is a batch of one group.
        if chosen["swap_ab"]:
            kernel = grouped_sm90
        else:
            del chosen["swap_ab"]
    known = {f.name for f in fields(kernel.Config)} | ({"kind"} & set(dir(kernel.Config)))
    dependent = values.get("dependent_launch", False)
    for name in (*chosen, *(["dependent_launch"] if dependent else [])):
        if name not in known:
            passed = passed_over(problem, target).items()
            reasons = "".join(f"; {other} does not: {why}" for other, why in passed)
            refuse_field(kernel, target, name, chosen, reasons)
    gpu = None
    if values.get("config_choice") == "chosen":
        refuse_beside_chosen(CONFIG_OPTIONS)
        gpu = chosen_model(values["gpu"], target, device)
    elif not values.get("why"):
        refuse_given(("gpu",), "is what --config chosen is about; try --config chosen")
    return Selection(problem, kernel, chosen, target_fields(kernel, target), gpu, dependent)


def option_of(field: str) -> str:
    """The option that gives a field of a Config."""
    return _OPTIONS.get(field, f"--{field.replace('_', '-')}")


def refuse_field(
    kernel: ModuleType, target: str, name: str, chosen: Mapping[str, Any], reasons: str = ""
) -> NoReturn:
    """Refuse the option of a field that the kernel does not have.

    chosen: the fields that were given. reasons: why no other kernel serves the problem.

    Raises: ConfigError.
    """
    if name == "tile_k":
        tile = f"{chosen['tile_m']}x{chosen['tile_n']}"
        raise ConfigError(
            f"--tile of {kernel.NAME}, which serves this problem on {target}, must be MxN, as its "
            f"K is one row of the swizzle, got {tile}x{chosen[name]}; try --tile {tile}{reasons}"
        )
    raise ConfigError(
        f"{kernel.NAME} has no {option_of(name)}, and serves this problem on {target}; try "
        f"without it{reasons}"
    )


def config_fields(values: dict[str, Any]) -> dict[str, int | str]:
    """Fields of a Config that the options give."""
    chosen: dict[str, int | str] = {}
    for option, names in (("tile", ("m", "n", "k")), ("cluster", ("m", "n"))):
        for name, size in zip(names, values[option] or (), strict=False):
            chosen[f"{option}_{name}"] = size
    if values["cluster"] and len(values["cluster"]) == 1:
        chosen["cluster_n"] = 1
    for name in ("stages", "warpgroups", "cta_group", "scheduler", "split_k"):
        if values[name] is not None:
            chosen[name] = values[name]
    if values["swizzle"] != "auto":
        chosen["swizzle_bytes"] = 0 if values["swizzle"] == "none" else int(values["swizzle"])
    if values["swap_ab"] != "auto":
        chosen["swap_ab"] = values["swap_ab"] == "on"
    for name in ("store", "kind"):
        if values[name] != "auto":
            chosen[name] = values[name]
    return chosen

"""Which fields of a Config a problem decides, and whether the two agree."""

from collections.abc import Collection
from typing import Any

from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.problem import Gemm

DECIDED = ("mode", "index", "a", "b", "d", "layout", "scale", "accumulate")
"""Fields that a problem decides in every Config that has them."""


def static_fields(problem: Gemm | GroupedGemm, config_type: type[Any]) -> dict[str, str]:
    """The fields of a Config of that type that the problem decides."""
    values = {name: getattr(problem, name) for name in DECIDED if hasattr(problem, name)}
    if isinstance(problem, GroupedGemm):
        values |= {"index": index_kind(problem), "layout": "nt"}
    return {name: values[name] for name in DECIDED if name in config_type.__dataclass_fields__}


def index_kind(problem: GroupedGemm) -> str:
    """How a kernel reads sizes: `ends` is read as `offsets`, whose starts lie one before."""
    return "rows" if problem.mode == "contiguous" and problem.index == "rows" else "offsets"


def check_agrees(problem: Gemm | GroupedGemm, config: Any) -> None:
    """Refuse a config that was made for another kind of problem.

    Raises: ConfigError.
    """
    for name, value in static_fields(problem, type(config)).items():
        if getattr(config, name) != value:
            raise ConfigError(
                f"config has {name}={getattr(config, name)}, the problem has {name}={value}; "
                "they must agree"
            )


def check_known(kernel: str, config_type: type[Any], chosen: Collection[str]) -> None:
    """Refuse names that are no fields of the kernel's Config.

    Raises: ConfigError.
    """
    known = config_type.__dataclass_fields__
    for name in chosen:
        if name not in known:
            raise ConfigError(f"{kernel} has no {name}; must be one of {', '.join(known)}")

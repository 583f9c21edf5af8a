"""Which fields of a Config a problem decides, and whether the two agree."""

from collections.abc import Mapping
from typing import Any

from ptxgen.config_rules import check_types
from ptxgen.epilogue import Epilogue
from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.problem import FP8, Gemm

EPILOGUE = ("c", "bias", "bias_dtype", "activation", "amax", "d_scale")
"""Fields that an epilogue decides; a kernel without them has none but D = alpha * sums."""
DECIDED = (
    "mode",
    "index",
    "a",
    "b",
    "d",
    "layout",
    "scale",
    "accumulate",
    "scale_format",
    *EPILOGUE,
)
"""Fields that a problem decides in every Config that has them."""


def static_fields(problem: Gemm | GroupedGemm, config_type: type[Any]) -> dict[str, Any]:
    """The fields of a Config of that type that the problem decides."""
    values: dict[str, Any] = {
        name: getattr(problem, name) for name in DECIDED if hasattr(problem, name)
    }
    if isinstance(problem, Gemm):
        values |= {name: getattr(problem.epilogue, name) for name in EPILOGUE}
        # packed or not: the same kernel, other strides
        values["scale_format"] = problem.scale_format.removesuffix("x4")
    else:
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
                f"config must have {name}={value}, as the problem has, got {name}="
                f"{getattr(config, name)}; try a config made for this problem"
            )


def check_plain(problem: Gemm, kernel: str) -> None:
    """Refuse what only gemm_sm90 has: an epilogue beyond alpha, an 8-bit D, UE8M0 block scales.

    Raises: ConfigError.
    """
    if problem.scale_format != "f32":
        raise ConfigError(
            f"{kernel} reads block scales of f32, got scale_format={problem.scale_format}; try "
            "arch=sm_90a and swap_ab off"
        )
    if problem.epilogue != Epilogue() or problem.d in FP8:
        given = [f"d={problem.d}"] if problem.d in FP8 else []
        given += [str(problem.epilogue)] if problem.epilogue != Epilogue() else []
        raise ConfigError(
            f"{kernel} has no epilogue but D = alpha * sums, and no 8-bit D, got "
            f"{', '.join(given)}; try arch=sm_90a, operands that TMA can load, and swap_ab off"
        )


def check_known(kernel: str, config_type: type[Any], chosen: Mapping[str, Any]) -> None:
    """Refuse names that are no fields of the kernel's Config, and values of another type.

    Raises: ConfigError.
    """
    known = config_type.__dataclass_fields__
    for name in chosen:
        if name not in known:
            raise ConfigError(
                f"{kernel} has no {name}; must be one of {', '.join(known)}; try without it"
            )
    check_types(config_type, chosen)

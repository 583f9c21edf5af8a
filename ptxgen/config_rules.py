"""Rules that the configs of several kernels share: what a field may be, and what must fit."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from numbers import Integral
from typing import Any, TypeVar

from ptxgen.arch import arch
from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError

C = TypeVar("C", bound=Any)

GRIDS_KEPT = 8
"""Grids of configs that a kernel remembers: problems of one kind have the same."""


KINDS = {int: "an integer", bool: "True or False", str: "a string"}
"""Types that fields of configs have, in words."""


def settle_types(config: Any) -> None:
    """Refuse fields that are not of their type; what numpy made of it becomes it.

    Raises: ConfigError.
    """
    config_type: Any = type(config)
    for name, kind, default in _typed_fields(config_type):
        value = getattr(config, name)
        if type(value) is not kind:
            object.__setattr__(config, name, _settled(name, value, kind, default))


def check_types(config_type: Any, chosen: Mapping[str, Any]) -> None:
    """Refuse values of fields of a config that are not of their type.

    Raises: ConfigError.
    """
    for name, kind, default in _typed_fields(config_type):
        if name in chosen:
            _settled(name, chosen[name], kind, default)


@cache
def _typed_fields(config_type: Any) -> tuple[tuple[str, Any, Any], ...]:
    """Name, type and default of each field."""
    return tuple((f.name, f.type, f.default) for f in fields(config_type))


def _settled(name: str, value: Any, kind: Any, default: Any) -> int | bool | str:
    """The value as one of `kind` itself.

    Raises: ConfigError.
    """
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if kind is str and isinstance(value, str):
        return str(value)
    whole = kind is int and isinstance(value, float) and value.is_integer()
    hint = int(value) if whole else default
    shown = "what the problem has" if hint is MISSING else f"{name}={hint!r}"
    shown += f" or {name}={not hint}" if kind is bool else ""
    raise ConfigError(f"{name} must be {KINDS[kind]}, got {value!r}; try {shown}")


def counted_sms(num_sms: Any) -> int:
    """SMs of a device, for which a launch is planned, as an int.

    Raises: ConfigError if that is no number of SMs.
    """
    if isinstance(num_sms, bool) or not isinstance(num_sms, Integral) or int(num_sms) < 1:
        raise ConfigError(
            f"num_sms must be an integer from 1, got {num_sms!r}; try without, or what the device "
            "has"
        )
    return int(num_sms)


def check_values(config: Any, allowed: Mapping[str, Collection[Any]], beside: str = "") -> None:
    """Refuse fields outside their range. beside: what the ranges depend on, for the message.

    Raises: ConfigError.
    """
    for name, values in allowed.items():
        value = getattr(config, name)
        if value not in values:
            raise ConfigError(
                f"{name}={value!r} must be {_shown(values)}{beside}; try {name}="
                f"{_nearest(value, values)}"
            )


def _nearest(value: Any, values: Collection[Any]) -> Any:
    """The number among `values` that is nearest to `value`; else the first of them."""
    numbers = [x for x in values if isinstance(x, int)]
    if numbers and isinstance(value, int):
        return min(numbers, key=lambda x: abs(x - value))
    return next(iter(values))


def _shown(values: Collection[Any]) -> str:
    if not isinstance(values, range):
        return f"one of {', '.join(map(str, values))}"
    span = f"from {values.start} to {values[-1]}"
    return span if values.step == 1 else f"a multiple of {values.step} {span}"


def check_tile_k(config: Any) -> None:
    """Refuse k-tiles that are not one row of the swizzle.

    Raises: ConfigError.
    """
    element_bytes = dtype(config.a).bytes
    widths = (config.swizzle_bytes,) if config.swizzle_bytes else (32, 64, 128)
    allowed = [w // element_bytes for w in widths]
    if config.tile_k not in allowed:
        raise ConfigError(
            f"tile_k={config.tile_k} of {config.a} must be {' or '.join(map(str, allowed))} "
            f"(one swizzle row of {' or '.join(map(str, widths))} bytes) with "
            f"swizzle={config.swizzle_bytes or 'none'}; try tile_k={allowed[-1]}"
        )


def check_smem(config: Any, target: str, least_stages: int = 1, limit: int = 0) -> None:
    """Refuse a config whose shared memory is more than a CTA on `target` can have.

    limit: its bytes, where CTAs share an SM.

    Raises: ConfigError.
    """
    limit = limit or arch(target).smem_bytes
    if config.smem_bytes > limit:
        fit = config.stages_that_fit
        hint = f"try stages<={fit}" if fit >= least_stages else "try a smaller tile"
        raise ConfigError(
            f"stages={config.stages} of tile {config.tile_m}x{config.tile_n}x{config.tile_k} needs "
            f"{config.smem_bytes} B of shared memory, a CTA on {target} has {limit} B; {hint}"
        )


def with_most_stages(config: C, most: int) -> C:
    """The config with as many stages as fit, up to `most`; one if not even that fits."""
    return replace(config, stages=max(1, min(most, config.stages_that_fit)))


def first_legal(candidates: Iterable[C]) -> C:
    """The first config that its own check lets pass.

    Raises: ConfigError if there is none: why the first was refused.
    """
    refusal: ConfigError | None = None
    for config in candidates:
        refused = refusal_of(config)
        if refused is None:
            return config
        refusal = refusal or refused
    assert refusal is not None
    raise refusal


def refusal_of(config: Any) -> ConfigError | None:
    """Why the config's own check refuses it; None if it is legal."""
    try:
        config.check()
    except ConfigError as error:
        return error
    return None


def filled_swizzles(a: str, k: int) -> tuple[int, ...]:
    """Swizzles whose rows K fills: 128 bytes, and narrower ones where a wider is half empty.

    Rows that are narrower than K fills only cost: more k-tiles, boxes and barriers for the same
    bytes.
    """
    k_bytes = k * dtype(a).bytes
    return tuple(width for width in (128, 64, 32) if width == 128 or k_bytes <= width)


def with_refusal(config: C) -> tuple[C, str | None]:
    """The config with None if it is legal, else with why not."""
    refused = refusal_of(config)
    return config, None if refused is None else str(refused)

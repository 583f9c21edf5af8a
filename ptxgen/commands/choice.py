"""Whose choice of a config is meant: the default one, or what a call takes on a model of GPU."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ptxgen.commands.option_lists import with_options
from ptxgen.devices import GPU_MODELS, GpuModel, gpu_model
from ptxgen.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_CHOICE = (
    click.option("--config", "config_choice", type=click.Choice(["default", "chosen"]),
                 default="default", show_default=True,
                 help="default: what --tile, --stages ... say, the rest by rule. chosen: what a "
                 "Python call takes on --gpu, measured or predicted to be the fastest; --tile ... "
                 "are refused beside it, --swap-ab of grouped is not."),
    click.option("--gpu", metavar="MODEL",
                 help="GPU model that the config is chosen for. [default: that of run --device "
                 "gpu, else the first one of --arch]"),
    click.option("--dependent-launch", is_flag=True,
                 help="The kernel may start before the one before it on the stream ends, and waits "
                 "for its end only before it reads A and writes D."),
)  # fmt: skip


def choice_options(command: F) -> F:
    """Add the options that say whose choice of a config is meant, and how it is launched."""
    return with_options(command, _CHOICE)


def chosen_model(name: str | None, target: str, device: Any = None) -> GpuModel | None:
    """The GPU model that --gpu names; else that of `device` if it is a GPU, else the first one of
    `target`; None if we know no rates of it, so that a call takes a default.

    Raises: ConfigError if there is no model of that name, or it is not one of `target`.
    """
    from ptxgen.selection import known_model

    known = [model for model in GPU_MODELS.values() if model.arch == target]
    properties = getattr(device, "properties", None)
    if name is None and properties is not None:
        return known_model(device.name, properties.num_sms, target)
    if name is None:
        return known[0] if known else None
    model = gpu_model(name)
    if model not in known:
        raise ConfigError(
            f"--gpu {name} must be of --arch {target}: "
            f"{', '.join(m.name for m in known) or 'none is known'}; try --arch {model.arch}"
        )
    return model

"""`ptxgen list`: what there is to choose from."""

from dataclasses import asdict
from typing import Any

import click

from ptxgen.commands.options import config_options, problem_options, select
from ptxgen.commands.output import json_option, print_json, print_table


@click.command("list")
@click.argument("what", type=click.Choice(["kernels", "configs", "dtypes", "archs", "gpus"]))
@click.option("--illegal", is_flag=True, help="Of configs, list those that are refused, and why.")
@problem_options
@config_options
@json_option
def command(what: str, illegal: bool, as_json: bool, **values: Any) -> None:
    """List kernels, configs, dtypes, architectures or known GPUs.

    The configs are those of the problem that the options describe.
    """
    if what == "configs":
        _list_configs(illegal, as_json, values)
        return
    rows = _rows(what)
    if as_json:
        print_json("ptxgen.list/1", {what: rows})
    else:
        columns = [name.replace("_", " ") for name in rows[0]]
        print_table("", columns, [list(row.values()) for row in rows])


def _rows(what: str) -> list[dict[str, Any]]:
    """One row per thing, with its facts by name."""
    from ptxgen.arch import ARCHS
    from ptxgen.devices import GPU_MODELS
    from ptxgen.dtypes import DTYPES
    from ptxgen.kernels import GROUPED_KERNELS, KERNELS

    kernels = KERNELS | GROUPED_KERNELS

    if what == "kernels":
        return [
            {
                "kernel": name,
                "arch": ", ".join(module.TARGETS),
                "what": (module.__doc__ or "").splitlines()[0].split(": ", 1)[-1],
            }
            for name, module in kernels.items()
        ]
    if what == "archs":
        return [
            {
                **asdict(a),
                "kernel": ", ".join(n for n, m in kernels.items() if a.name in m.TARGETS)
                or "none yet",
            }
            for a in ARCHS.values()
        ]
    return [asdict(x) for x in (DTYPES if what == "dtypes" else GPU_MODELS).values()]


def _list_configs(illegal: bool, as_json: bool, values: dict[str, Any]) -> None:
    """All configs of the kernel's grid for the problem: the legal ones, or the refused ones."""
    selection = select(values)
    found = [
        (config, reason)
        for config, reason in selection.kernel.configs(selection.problem, **selection.fixed)
        if all(getattr(config, name) == value for name, value in selection.chosen.items())
    ]
    refused = sum(reason is not None for _, reason in found)
    shown = [(config, reason) for config, reason in found if (reason is not None) == illegal]
    if as_json:
        print_json(
            "ptxgen.list/1",
            {
                "legal": len(found) - refused,
                "illegal": refused,
                "configs": [
                    {"name": str(config), "config": asdict(config), "reason": reason}
                    for config, reason in shown
                ],
            },
        )
        return
    title = f"{len(found) - refused} legal configs, {refused} refused"
    if illegal:
        print_table(title, ("config", "reason"), shown)
    else:
        print_table(
            title,
            ("config", "smem B"),
            [(str(config), config.smem_bytes) for config, _ in shown],
        )

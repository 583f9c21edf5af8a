"""`ptxgen run`: run a kernel and check its result."""

from typing import Any

import click

from ptxgen.commands.choice import choice_options
from ptxgen.commands.grouped_options import GROUPED, grouped_options, select_grouped
from ptxgen.commands.options import (
    TARGETS,
    config_options,
    problem_options,
    refuse_given,
    refuse_options_of_problems,
    select,
)
from ptxgen.commands.output import (
    json_option,
    note,
    output_files,
    print_facts,
    print_json,
    print_table,
    read_launch,
    read_text,
)
from ptxgen.errors import ArgumentError


@click.command("run")
@click.argument("target", metavar="|".join((*TARGETS, GROUPED, "FILE", "-")))
@problem_options
@grouped_options
@config_options
@choice_options
@click.option(
    "--device",
    "device_name",
    default="auto",
    show_default=True,
    metavar="auto|emulator|gpu[:INDEX]",
    help="Where to run; auto is a GPU if one is here, else the emulator.",
)
@click.option(
    "--data",
    type=click.Choice(["random", "integers", "positive"]),
    default="random",
    show_default=True,
    help="Inputs: normal numbers, integers that are summed exactly, or magnitudes.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the data.")
@click.option("--exact", is_flag=True, help="Emulate Tensor Core sums bit for bit.")
@click.option("--launch", "launch_path", metavar="PATH", help="Launch description of a FILE.")
@click.option(
    "--save",
    multiple=True,
    metavar="BUFFER=PATH",
    help="Write an output buffer of a FILE there, raw.",
)
@json_option
def command(
    target: str,
    device_name: str,
    data: str,
    seed: int,
    exact: bool,
    launch_path: str | None,
    save: tuple[str, ...],
    as_json: bool,
    **values: Any,
) -> None:
    """Run a kernel on the emulator or a GPU, and check its result.

    TARGET is gemm or grouped with the options of a problem, whose result is compared with numpy's;
    or a PTX file (- for stdin) with --launch, which is run as it is. A wrong result exits with
    code 5.
    """
    if target in (*TARGETS, GROUPED) and (launch_path or save):
        raise click.UsageError("--launch and --save belong to a FILE; try emit -o FILE")
    if target == GROUPED:
        _run_grouped(device_name, data, seed, exact, as_json, values)
    elif target in TARGETS:
        _run_gemm(device_name, data, seed, exact, as_json, values)
    elif launch_path is None:
        raise click.UsageError(
            "a FILE needs --launch PATH; try emit --launch-out, which writes one"
        )
    else:
        refuse_options_of_problems(values)
        refuse_given(("data", "seed"), "a FILE takes its inputs from its launch; try without")
        _run_file(target, launch_path, device_name, exact, dict(map(_buffer_path, save)), as_json)


def open_device(name: str, exact: bool = False) -> Any:
    """The device that --device names.

    Raises: ArgumentError if there is no such name; ToolMissingError, DriverError.
    """
    kind, _, index = name.partition(":")
    if kind == "auto" and not index:
        from ptxgen.launcher.driver import driver_available

        kind = "gpu" if driver_available() else "emulator"
    if kind == "emulator" and not index:
        from ptxgen.emulator import EmulatorDevice, Options

        return EmulatorDevice(Options(exact=exact))
    if kind == "gpu" and (index.isdecimal() or not index):
        from ptxgen.launcher.device import GpuDevice

        return GpuDevice.get(int(index) if index else None)
    raise ArgumentError(
        f"device must be auto, emulator, gpu or gpu:INDEX, got {name!r}; try emulator"
    )


def _run_gemm(
    device_name: str, data: str, seed: int, exact: bool, as_json: bool, values: dict[str, Any]
) -> None:
    from ptxgen.commands.trial_report import run_and_report
    from ptxgen.kernels import k_parts, unit_of
    from ptxgen.trial import run_gemm

    device = open_device(device_name, exact)
    selection = select(values, device)

    def run(launch: Any, ptx: str, config: Any, tell: Any) -> Any:
        return run_gemm(
            selection.problem, launch, ptx, device, tile=(config.tile_m, config.tile_n),
            data=data, seed=seed, exact=exact, unit=unit_of(config),
            k_parts=k_parts(config, selection.problem), tell=tell,
        )  # fmt: skip

    run_and_report(selection, device, run, data, seed, as_json)


def _run_grouped(
    device_name: str, data: str, seed: int, exact: bool, as_json: bool, values: dict[str, Any]
) -> None:
    from ptxgen.commands.trial_report import run_and_report
    from ptxgen.grouped_trial import run_grouped

    device = open_device(device_name, exact)
    selection = select_grouped(values, device)

    def run(launch: Any, ptx: str, config: Any, tell: Any) -> Any:
        return run_grouped(
            selection.problem, selection.sizes, config, launch, ptx, device,
            rows=selection.rows, data=data, seed=seed, exact=exact, tell=tell,
        )  # fmt: skip

    run_and_report(selection, device, run, data, seed, as_json)


def _run_file(
    path: str,
    launch_path: str,
    device_name: str,
    exact: bool,
    save: dict[str, str],
    as_json: bool,
) -> None:
    from hashlib import sha256

    from ptxgen.commands.progress import progress_shown
    from ptxgen.trial import digest, run_launch

    ptx = read_text(path)
    launch = read_launch(launch_path)
    for name in save:
        if not launch.buffer(name).is_result:
            raise ArgumentError(
                f"--save {name}: must be a buffer that holds a result, got one of role "
                f"{launch.buffer(name).role}; try "
                f"{', '.join(b.name for b in launch.buffers if b.is_result) or 'without'}"
            )
    with output_files(*save.values()) as files:
        device = open_device(device_name, exact)
        with progress_shown(device) as progress:
            progress.tell("running the kernel")
            seconds, outputs = run_launch(launch, ptx, device)
        for name, file in zip(save, files, strict=True):
            assert file is not None
            file.write(outputs[name])
    rows = [
        {"buffer": name, "bytes": len(content), "sha256": sha256(content).hexdigest()}
        for name, content in outputs.items()
    ]
    if as_json:
        print_json(
            "ptxgen.run/1",
            {
                "ok": True,
                "device": device.name,
                "kernel": launch.entry,
                "config": None,
                "ptx_sha256": digest(ptx),
                "seconds": seconds,
                "max_error_over_bound": None,
                "worst": None,
                "outputs": rows,
            },
        )
        return
    note("ran to its end; the result of a FILE is not compared with anything")
    print_facts("", {"device": device.name, "kernel": launch.entry, "seconds": seconds})
    print_table("Outputs", ("buffer", "bytes", "sha256"), [list(row.values()) for row in rows])


def _buffer_path(text: str) -> tuple[str, str]:
    name, separator, path = text.partition("=")
    if not separator or not name or not path:
        raise click.UsageError(f"--save {text!r} must read BUFFER=PATH; try d=d.raw")
    return name, path

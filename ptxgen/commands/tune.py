"""`ptxgen tune`: measure configs and remember the fastest."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ptxgen.commands.options import (
    TARGETS,
    kinds_of,
    measured_config_options,
    measurement_options,
    problem_options,
    select,
)
from ptxgen.commands.output import json_option, note, output_files, print_json, print_table
from ptxgen.commands.progress import bar_shown


@click.command("tune")
@click.argument("target", type=click.Choice(TARGETS))
@problem_options
@measured_config_options
@measurement_options
@click.option(
    "--top",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Configs taken from the cost model's ranking.",
)
@click.option(
    "--neighbour-rounds",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="How often the neighbours of the best so far are tried.",
)
@click.option(
    "--time-budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop after about this long; what was measured is kept.",
)
@click.option("--fresh", is_flag=True, help="Measure again what the table has.")
@click.option(
    "--table",
    "table_path",
    metavar="PATH",
    help="The tuning table. [default: PTXGEN_TUNING_TABLE, or the user's data folder]",
)
@click.option("--log", metavar="PATH", help="Add every measurement to this CSV file.")
@click.option(
    "--export",
    metavar="PATH",
    help="Write the fastest config of each problem there, "
    "as the JSON of a table that ships; problems already in it are kept or replaced.",
)
@json_option
def command(
    target: str,
    set_names: tuple[str, ...],
    kind_names: tuple[str, ...],
    top: int,
    neighbour_rounds: int,
    time_budget: float | None,
    fresh: bool,
    table_path: str | None,
    log: str | None,
    export: str | None,
    executor: str,
    gpu_index: int | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Measure configs and remember the fastest.

    The configs that the cost model ranks highest are measured, then the neighbours of the best,
    then the best few again. Options of a config, such as --tile, narrow the search. A run that was
    stopped goes on where it was. Later runs of ptxgen on this GPU take what was found.
    """
    from ptxgen import selection
    from ptxgen.benchmark.gpu_state import StateSampler
    from ptxgen.benchmark.measuring import KernelMeasure
    from ptxgen.benchmark.replay import stopwatch
    from ptxgen.benchmark.suite import environment_of
    from ptxgen.executors import executor_of
    from ptxgen.launcher.device import GpuDevice
    from ptxgen.tuner import Effort, tune
    from ptxgen.tuning_table import TuningTable, default_path

    problems, chosen = _problems(set_names, kind_names, values)
    device = GpuDevice.get(gpu_index)
    environment = environment_of(device, StateSampler(device))
    gpu = selection.model_of(device.name, device.properties.num_sms)
    with (
        output_files(export) as (file,),
        executor_of(executor) as pool,
        stopwatch(device) as watch,
        _progress(len(problems)) as report,
    ):
        # Made last: nothing is left behind where there is no GPU or no such executor.
        table = TuningTable(Path(table_path) if table_path else default_path())
        note(f"{device.name}: {len(problems)} problems; table {table.path}")
        previous = _content(export)
        measure = KernelMeasure(watch)
        found = tune(
            problems, gpu, environment, measure, table, pool,
            effort=Effort(top=top, neighbour_rounds=neighbour_rounds), fresh=fresh,
            time_budget_s=time_budget or float("inf"), report=report,
            log=Path(log) if log else None, chosen=chosen,
        )  # fmt: skip
        measure.close()
        if file is not None:
            file.write(_merged(previous, table, problems, environment.device).encode())
    if as_json:
        print_json(
            "ptxgen.tune/1",
            {
                "environment": asdict(environment),
                "table": str(table.path),
                "problems": [
                    {**asdict(t), "config_name": str(t.config), "reproduce": t.reproduce}
                    for t in found
                ],
                "untouched": len(problems) - len(found),
            },
        )
        return
    print_table(
        "Fastest",
        ("m", "n", "k", "us", "TFLOPS", "model's us", "measured", "failed", "all", "config"),
        [
            (
                t.problem.m, t.problem.n, t.problem.k,
                round(t.seconds * 1e6, 2) if t.seconds else None,
                round(t.problem.flop / t.seconds / 1e12, 1) if t.seconds else None,
                round(t.predicted_seconds * 1e6, 2) if t.predicted_seconds else None,
                t.measured, t.failed, t.complete, str(t.config),
            )
            for t in found
        ],
    )  # fmt: skip
    for t in found:
        if t.config is not None:
            click.echo(t.reproduce)
    if len(found) < len(problems):
        note(f"no time was left for {len(problems) - len(found)} problems; the next run goes on")


def _problems(
    set_names: tuple[str, ...], kind_names: tuple[str, ...], values: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The problems that the options describe, without repetition, and fixed fields of a config."""
    from ptxgen.benchmark.sets import bench_set

    selection = select(values)
    kinds = kinds_of(set_names, kind_names)
    if not set_names:
        return [selection.problem], selection.chosen
    shapes = [shape for name in set_names for shape in bench_set(name).shapes]
    problems = dict.fromkeys(k.problem(shape) for k in kinds for shape in shapes)
    return list(problems), selection.chosen


def _content(path: str | None) -> str | None:
    """What the file at `path` holds; None if there is no such file."""
    if path in (None, "-") or not Path(str(path)).is_file():
        return None
    return Path(str(path)).read_text(encoding="utf-8")


def _merged(previous: str | None, table: Any, problems: list[Any], device: str) -> str:
    """The table that ships: what it had, with the fastest rows of `problems` now."""
    from ptxgen.tuning_table import best_rows, problem_key, read_rows, write_rows

    old = {row.problem: row for row in (read_rows(previous) if previous else [])}
    fresh = best_rows(row for problem in problems for row in table.rows(problem, device))
    new = {row.problem: row for row in fresh}
    order = [problem_key(problem) for problem in problems]
    keys = [*old, *(key for key in order if key in new and key not in old)]
    return write_rows(new.get(key) or old[key] for key in keys)


@contextmanager
def _progress(num_problems: int) -> Iterator[Callable[[Any], None]]:
    """A bar on stderr if that is a terminal, else a line for each problem."""
    best: dict[Any, float] = {}
    with bar_shown() as bar:

        def show(event: Any) -> None:
            p = event.problem
            what = f"problem {event.problems_done + 1} of {num_problems}: {p.m} x {p.n} x {p.k}"
            if bar is None and p not in best:
                note(what)
            best[p] = min(event.seconds or math.inf, best.get(p, math.inf))
            if bar is not None:
                fastest = f", best {best[p] * 1e6:.2f} us" if best[p] < math.inf else ""
                bar.show(what + fastest, event.problems_done, num_problems)
            if event.error:
                (bar.say if bar else note)(f"  {event.config}: {event.error}")

        yield show

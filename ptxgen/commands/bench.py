"""`ptxgen bench`: measure kernels on this GPU beside the libraries that are here."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from ptxgen.commands.bench_report import Measurement, peers_shown, print_summary
from ptxgen.commands.grouped_options import GROUPED
from ptxgen.commands.options import (
    TARGETS,
    kinds_of,
    measured_config_options,
    measurement_options,
    problem_options,
    refuse_given,
    select,
)
from ptxgen.commands.output import json_option, note, print_table

CUSTOM = "custom"


@click.command("bench")
@click.argument("target", type=click.Choice((*TARGETS, GROUPED)), required=False)
@problem_options
@measured_config_options
@measurement_options
@click.option("--list", "list_sets", is_flag=True, help="List sets, kinds and peers, and stop.")
@click.option(
    "--config", "config_json", metavar="JSON", help="Fields of the config, as tune prints them."
)
@click.option(
    "--peers",
    default="all",
    show_default=True,
    metavar="NAME,...",
    help="cublaslt, torch, deepgemm, all, none, or the peers' own names.",
)
@click.option(
    "--deepgemm",
    metavar="DIR",
    help="Cubins of benchmarks/deepgemm_cubins.py, to measure DeepGEMM where it is not installed.",
)
@click.option("--both-ways", is_flag=True, help="Of grouped: swapped and not, side by side.")
@click.option(
    "--peer-table",
    metavar="PATH",
    help="Peers of another run, to convert through "
    "one that is here. [default: benchmarks/peers/h200.json of a checkout]",
)
@click.option(
    "--time-budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop beginning problems after this long.",
)
@click.option("--rounds", type=click.IntRange(2), help="At most so many paired rounds.")
@click.option("--measured-by", metavar="NAME", help="Who measures, for the report.")
@click.option("-o", "--output", metavar="PATH", help="Write the report there, as JSON.")
@click.option("--plot", metavar="PATH", help="Draw roofline and bars there (.png, .svg, .pdf).")
@json_option
def command(
    target: str | None,
    set_names: tuple[str, ...],
    kind_names: tuple[str, ...],
    list_sets: bool,
    config_json: str | None,
    peers: str,
    deepgemm: str | None,
    both_ways: bool,
    peer_table: str | None,
    time_budget: float | None,
    rounds: int | None,
    executor: str,
    gpu_index: int | None,
    measured_by: str | None,
    output: str | None,
    plot: str | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Measure kernels on this GPU beside the libraries that are here.

    Every result is checked before it is timed. Ratios are times of the peer over ours; shapes that
    lose are listed. Exits with 5 if a result is wrong.
    """
    if list_sets:
        from ptxgen.commands.grouped_bench import list_grouped

        if target != GROUPED:
            _list()
        if target not in TARGETS:
            list_grouped()
        return
    if target is None:
        raise click.UsageError(
            f"what to measure must be {' or '.join((*TARGETS, GROUPED))}, got neither; try bench "
            "gemm"
        )
    from ptxgen.benchmark.conversion import default_table, load_peer_table
    from ptxgen.benchmark.deepgemm import load_cubins, with_cubins

    cubins = load_cubins(Path(deepgemm)) if deepgemm else None
    table_path = Path(peer_table) if peer_table else default_table()
    table = load_peer_table(table_path) if table_path else None
    measurement = Measurement(
        table, time_budget, rounds, executor, gpu_index, measured_by, output, plot, as_json
    )
    if target == GROUPED:
        from ptxgen.commands.grouped_bench import bench_grouped

        refuse_given({*values, "config_json"}, "bench grouped measures sets; try --set, or --list")
        bench_grouped(measurement, set_names, kind_names, peers, both_ways, cubins)
        return
    refuse_given(("both_ways",), "belongs to groups; try bench grouped, or without")
    if set_names:
        refuse_given(
            {*values, "config_json"}, "belongs to one problem; try without, or without --set"
        )
    from ptxgen.benchmark.peers import chosen_peers
    from ptxgen.benchmark.plot import plot_report
    from ptxgen.benchmark.suite import run

    cases = _cases(set_names, kind_names, config_json, values)
    found = chosen_peers([name.strip() for name in peers.split(",")])
    found = with_cubins(found, cubins) if cubins else found
    measurement.report(partial(run, peers=found), cases, plot_report, _print)


def _cases(
    set_names: tuple[str, ...], kind_names: tuple[str, ...], config_json: str | None,
    values: dict[str, Any],
) -> list[Any]:  # fmt: skip
    """The cases that the options describe."""
    from ptxgen.benchmark.sets import bench_set
    from ptxgen.benchmark.suite import Case, cases_of

    kinds = kinds_of(set_names, kind_names)
    if set_names:
        return cases_of([bench_set(name) for name in set_names], kinds)
    selection = select(values)
    chosen = selection.config if selection.chosen else None
    if config_json:
        chosen = config_of(selection.kernel, selection.problem, config_json)
    p = selection.problem
    label = f"{p.a}-{p.b}-{p.d}-{p.layout}-{p.scale}-{p.accumulate}"
    return [Case(CUSTOM, label, p, None, chosen)]


def config_of(kernel: Any, problem: Any, text: str) -> Any:
    """The config whose tunable fields are the JSON object `text`.

    Raises: ArgumentError if it is not one, or has a field that the config does not have.
    """
    from ptxgen.errors import ArgumentError
    from ptxgen.kernels.agreement import static_fields

    try:
        fields = json.loads(text)
        return kernel.Config(**static_fields(problem, kernel.Config), **fields)
    except (json.JSONDecodeError, TypeError) as error:
        raise ArgumentError(
            f"--config must be a JSON object of fields of {kernel.NAME}'s config, got {text!r}: "
            f'{error}; try \'{{"tile_m": 128, "tile_n": 256}}\''
        ) from error


def _list() -> None:
    from ptxgen.benchmark.peers import GROUPS, PEERS
    from ptxgen.benchmark.sets import KINDS, SETS

    print_table("Sets", ("set", "shapes", "what"),
                [(s.name, len(s.shapes), s.what) for s in SETS.values()])  # fmt: skip
    print_table("Kinds", ("kind", "A and B", "D", "scale", "accumulate"),
                [(x.name, x.a, x.d, x.scale, x.accumulate) for x in KINDS.values()])  # fmt: skip
    print_table("Peers", ("peer", "what"),
                [*((p.name, p.what) for p in PEERS.values()),
                 *((name, ", ".join(members)) for name, members in GROUPS.items())])  # fmt: skip


def _print(report: dict[str, Any]) -> None:
    ceilings = report["ceilings"]
    mma = ", ".join(f"{n} {v:.0f}" for n, v in ceilings["wgmma_tflops"].items())
    note(
        f"ceilings: read stream {ceilings['read_stream_gbytes_per_s']:.0f} GB/s, "
        f"wgmma {mma} TFLOPS, empty launch {ceilings['empty_launch_us']:.2f} us"
    )
    print_table(
        f"{report['hardware']['name']}: times in us, ratios are time of the peer / ours",
        ("set", "kind", "m", "n", "k", "us", "TFLOPS", "GB/s", "% MMA", "% read", "spread",
         "peers", "config"),
        [
            (
                r["set"], r["kind"], r["m"], r["n"], r["k"], round(r["us"], 2),
                round(r["tflops"], 1), round(r["gbytes_per_s"]),
                round(r["percent_of_wgmma_ceiling"] or 0, 1),
                round(r["percent_of_read_stream"] or 0, 1), round(r["spread"], 3),
                peers_shown(r),
                r["config_name"],
            )
            for r in report["results"]
        ],
    )  # fmt: skip
    print_summary(report, lambda x: f"{x['m']}x{x['n']}x{x['k']}")

"""What `ptxgen bench grouped` does: measure sets of grouped problems beside DeepGEMM."""

import getpass
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxgen.commands.output import note, output_files, print_json, print_table
from ptxgen.errors import WrongResultError

if TYPE_CHECKING:
    from ptxgen.benchmark.conversion import PeerTable


def list_grouped() -> None:
    """Print the sets and kinds."""
    from ptxgen.benchmark.grouped_peers import WHAT
    from ptxgen.benchmark.grouped_sets import KINDS, SETS

    print_table(
        "Sets",
        ("set", "problems", "mode", "kind", "what"),
        [(s.name, len(s.shapes), s.mode, s.kind, s.what) for s in SETS.values()],
    )
    print_table("Kinds", ("kind", "A and B", "D", "scale"),
                [(x.name, x.a, x.d, x.scale) for x in KINDS.values()])  # fmt: skip
    print_table("Peers", ("peer", "what"), list(WHAT.items()))


def bench_grouped(
    set_names: tuple[str, ...], kind_names: tuple[str, ...], peers: str, both_ways: bool,
    time_budget: float | None, rounds: int | None, executor: str, gpu_index: int | None,
    measured_by: str | None, output: str | None, table: "PeerTable | None", plot: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Measure, print and write the report.

    Without a set, all are measured.

    Raises: ArgumentError; WrongResultError if a result is wrong; DriverError.
    """
    from ptxgen.benchmark.grouped_sets import SETS, cases_of
    from ptxgen.benchmark.grouped_suite import run
    from ptxgen.benchmark.method import Method
    from ptxgen.executors import executor_of
    from ptxgen.launcher.device import GpuDevice

    if not set_names:
        set_names = tuple(SETS)
    cases = cases_of(set_names, kind_names)
    method = Method() if rounds is None else Method(min_rounds=min(5, rounds), max_rounds=rounds)
    with output_files(output) as (file,), executor_of(executor) as pool:
        report = run(
            cases, GpuDevice.get(gpu_index), pool, peers=peers != "none", both_ways=both_ways,
            method=method, time_budget_s=time_budget or float("inf"), table=table,
            measured_by=measured_by or getpass.getuser(), note=note,
        )  # fmt: skip
        if file is not None:
            file.write(json.dumps(report, indent=1).encode() + b"\n")
    if plot:
        from ptxgen.benchmark.grouped_plot import plot_grouped

        plot_grouped(report, Path(plot))
    if as_json:
        print_json(report.pop("schema"), report)
    else:
        _print(report)
    if report["failed"]:
        raise WrongResultError("; ".join(f["case"] + ": " + f["reason"] for f in report["failed"]))


def _print(report: dict[str, Any]) -> None:
    note(f"read stream {report['ceilings']['read_stream_gbytes_per_s']:.0f} GB/s")
    print_table(
        f"{report['hardware']['name']}: times in us, ratios are time of the peer / ours",
        ("set", "kind", "case", "us", "TFLOPS", "% of stream", "swapped", "peers", "config"),
        [
            (
                r["set"], r["kind"], r["case"], round(r["us"], 2), round(r["tflops"], 1),
                round(r["percent_of_read_stream"], 1), r["swap_ab"],
                ", ".join(f"{p['peer']} {p['ratio']:.3f}" for p in r["peers"]), r["config_name"],
            )
            for r in report["results"]
        ],
    )  # fmt: skip
    print_table(
        "Summary",
        ("set", "peer", "problems", "geomean", "min", "losing"),
        [
            (
                s["set"], s["peer"], s["problems"], round(s["geomean"], 4), round(s["min"], 4),
                ", ".join(x["case"] for x in s["losing"]),
            )
            for s in report["summary"]
        ],
    )  # fmt: skip
    for what in ("skipped", "failed"):
        for entry in report[what]:
            note(f"{what}: {entry['case']}: {entry['reason']}")

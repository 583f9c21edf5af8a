"""What `ptxgen bench grouped` does: measure sets of grouped problems beside DeepGEMM."""

from functools import partial
from typing import TYPE_CHECKING, Any

from ptxgen.commands.bench_report import Measurement, peers_shown, print_summary
from ptxgen.commands.output import note, print_table

if TYPE_CHECKING:
    from ptxgen.benchmark.deepgemm import Cubins


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
    measurement: Measurement, set_names: tuple[str, ...], kind_names: tuple[str, ...], peers: str,
    both_ways: bool, cubins: "Cubins | None",
) -> None:  # fmt: skip
    """Measure, print and write the report.

    Without a set, all are measured.

    Raises: ArgumentError; WrongResultError if a result is wrong; DriverError.
    """
    from ptxgen.benchmark.grouped_plot import plot_grouped
    from ptxgen.benchmark.grouped_sets import SETS, cases_of
    from ptxgen.benchmark.grouped_suite import run

    cases = cases_of(set_names or tuple(SETS), kind_names)
    measured = partial(run, peers=peers != "none", both_ways=both_ways, cubins=cubins)
    measurement.report(measured, cases, plot_grouped, _print)


def _print(report: dict[str, Any]) -> None:
    note(f"read stream {report['ceilings']['read_stream_gbytes_per_s']:.0f} GB/s")
    print_table(
        f"{report['hardware']['name']}: times in us, ratios are time of the peer / ours",
        ("set", "kind", "case", "us", "TFLOPS", "% of stream", "swapped", "peers", "config"),
        [
            (
                r["set"], r["kind"], r["case"], round(r["us"], 2), round(r["tflops"], 1),
                round(r["percent_of_read_stream"], 1), r["swap_ab"],
                peers_shown(r), r["config_name"],
            )
            for r in report["results"]
        ],
    )  # fmt: skip
    print_summary(report, lambda x: str(x["case"]))

"""grouped_plot: a report of grouped problems as a picture: swapped and straight over rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxgen.benchmark.grouped_suite import OTHER
from ptxgen.benchmark.plot import pyplot_module, save_figure
from ptxgen.errors import ArgumentError

CURVE = "swap-curve"
"""The set of a curve's points; other sets have some of its sizes, measured by another method."""


def plot_grouped(report: Mapping[str, Any], path: Path) -> None:
    """Write one panel for each set of weights that was measured both ways at several row counts;
    the suffix of `path` says which format.

    Raises: ArgumentError if the report has no such weights; ToolMissingError without matplotlib;
    OutputPathError.
    """
    curves = swap_curves(report["results"])
    if not curves:
        raise ArgumentError(f"a plot of grouped problems shows --set {CURVE}; try that set")
    pyplot = pyplot_module()
    figure, panels = pyplot.subplots(
        1, len(curves), figsize=(6 * len(curves), 5), layout="constrained", squeeze=False
    )
    for axes, ((groups, n, k), points) in zip(panels[0], curves.items(), strict=True):
        rows = [p["rows"] for p in points]
        for swapped, label in ((True, "swapped"), (False, "straight")):
            axes.plot(rows, [p["us"][swapped] for p in points], label=label)
        axes.plot(rows, [p["us"][p["chosen"]] for p in points], "k.", markersize=4, label="chosen")
        axes.plot(rows, [p["stream_us"] for p in points], ":", label="read stream")
        axes.set(xlabel="rows per group", ylabel="us", ylim=(0, None),
                 title=f"{groups} groups, n={n}, k={k}")  # fmt: skip
        axes.legend(fontsize="small")
    figure.suptitle(f"{report['hardware']['name']}, {report['environment'].get('clocks', '')}")
    save_figure(pyplot, figure, path)


def swap_curves(results: list[dict[str, Any]]) -> dict[tuple[int, int, int], list[dict[str, Any]]]:
    """The curve's points by (groups, n, k), measured both ways, for three rows or more: rows,
    us by whether the operands were swapped, which was chosen, and the stream's us."""
    found: dict[tuple[int, int, int], dict[int, dict[str, Any]]] = {}
    for r in results:
        other = next((p for p in r["peers"] if p["peer"] == OTHER), None)
        if r["set"] != CURVE or other is None:
            continue
        point = {
            "rows": r["rows"][0],
            "us": {r["swap_ab"]: r["us"], not r["swap_ab"]: other["us"]},
            "chosen": r["swap_ab"],
            "stream_us": r["read_stream_us"],
        }
        found.setdefault((r["groups"], r["n"], r["k"]), {})[r["rows"][0]] = point
    return {
        shape: [points[rows] for rows in sorted(points)]
        for shape, points in found.items()
        if len(points) > 2
    }

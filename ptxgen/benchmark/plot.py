"""plot: a report as a picture: roofline, and bars of ours beside the peers."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ptxgen.errors import OutputPathError, ToolMissingError

OURS = "ptxgen"


def plot_report(report: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a report; the suffix of `path` says which format (png, svg, pdf).

    Raises: ToolMissingError without matplotlib; OutputPathError.
    """
    pyplot = pyplot_module()
    results = report["results"]
    width = max(10.0, 0.55 * len(results) + 4)
    figure, (roofline, bars) = pyplot.subplots(2, 1, figsize=(width, 10), layout="constrained")
    _roofline(roofline, report)
    _bars(bars, results)
    hardware = report["hardware"]
    figure.suptitle(f"{hardware['name']}, {report['environment'].get('clocks', '')}")
    save_figure(pyplot, figure, path)


def pyplot_module() -> Any:
    """matplotlib.pyplot, drawing without a screen.

    Raises: ToolMissingError without matplotlib.
    """
    try:
        import_module("matplotlib").use("Agg")
        return import_module("matplotlib.pyplot")  # by name: an optional dependency
    except ImportError as error:
        raise ToolMissingError(
            f"a plot needs matplotlib ({error}); try pip install 'ptxgen[bench]'"
        ) from error


def save_figure(pyplot: Any, figure: Any, path: Path) -> None:
    """Write a figure, and close it.

    Raises: OutputPathError.
    """
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:  # ValueError: a format that matplotlib does not know
        raise OutputPathError(f"cannot write {path}: {error}; try a .png or .svg path") from error
    finally:
        pyplot.close(figure)


def _roofline(axes: Any, report: Mapping[str, Any]) -> None:
    """Performance over arithmetic intensity, under the ceilings measured in the same run."""
    results, ceilings = report["results"], report["ceilings"]
    intensity = [r["tflops"] * 1e3 / r["gbytes_per_s"] for r in results]
    read = ceilings["read_stream_gbytes_per_s"]
    low, high = min(intensity, default=1.0) / 2, max(intensity, default=1000.0) * 2
    for name, peak in ceilings["wgmma_tflops"].items():
        ridge = peak * 1e3 / read
        axes.plot(
            [low, ridge, max(high, 2 * ridge)], [low * read / 1e3, peak, peak],
            label=f"{name}: wgmma {peak:.0f} TFLOPS, read stream {read:.0f} GB/s",
        )  # fmt: skip
    for label in dict.fromkeys((r["set"], r["kind"]) for r in results):
        chosen = [i for i, r in enumerate(results) if (r["set"], r["kind"]) == label]
        axes.plot(
            [intensity[i] for i in chosen], [results[i]["tflops"] for i in chosen], "o",
            label=f"{label[0]}, {label[1]}",
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="TFLOPS")
    axes.legend(fontsize="small")


def _bars(axes: Any, results: list[dict[str, Any]]) -> None:
    """TFLOPS of ours and of every peer, problem by problem."""
    names = dict.fromkeys(p["peer"] for r in results for p in r["peers"])
    series: dict[str, list[float | None]] = {OURS: [r["tflops"] for r in results]}
    for name in names:
        found = [{p["peer"]: p["tflops"] for p in r["peers"]}.get(name) for r in results]
        series[name] = found
    step = 0.8 / max(1, len(series))
    for i, (name, values) in enumerate(series.items()):
        places = [x + i * step for x in range(len(results))]
        axes.bar(places, [v or 0.0 for v in values], step, label=name)
    axes.set_xticks([x + 0.4 - step / 2 for x in range(len(results))])
    axes.set_xticklabels(
        [f"{r['m']}x{r['n']}x{r['k']}\n{r['kind']}" for r in results], rotation=60, ha="right",
        fontsize="small",
    )  # fmt: skip
    axes.set_ylabel("TFLOPS")
    axes.legend(fontsize="small")

"""What `ptxgen bench` does with the cases of dense and of grouped problems alike."""

import getpass
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxgen.commands.output import note, output_files, print_json, print_table
from ptxgen.errors import WrongResultError

if TYPE_CHECKING:
    from ptxgen.benchmark.conversion import PeerTable

Report = dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    """How is measured, and where the report goes: the options that both have."""

    table: "PeerTable | None"
    """Peers of another run, to convert."""
    time_budget: float | None
    rounds: int | None
    executor: str
    gpu_index: int | None
    measured_by: str | None
    output: str | None
    plot: str | None
    as_json: bool

    def report(
        self,
        run: Callable[..., Report],
        cases: Sequence[Any],
        draw: Callable[[Report, Path], None],
        show: Callable[[Report], None],
    ) -> None:
        """Measure the cases by `run`, write the report, and draw and show it.

        Raises: WrongResultError if a result is wrong; DriverError; as `run`.
        """
        from ptxgen.benchmark.method import Method
        from ptxgen.executors import executor_of
        from ptxgen.launcher.device import GpuDevice

        most = self.rounds
        method = Method() if most is None else Method(min_rounds=min(5, most), max_rounds=most)
        with output_files(self.output) as (file,), executor_of(self.executor) as pool:
            report = run(
                cases, GpuDevice.get(self.gpu_index), executor=pool, method=method,
                time_budget_s=self.time_budget or float("inf"), table=self.table,
                measured_by=self.measured_by or getpass.getuser(), note=note,
            )  # fmt: skip
            if file is not None:
                file.write(json.dumps(report, indent=1).encode() + b"\n")
        if self.plot:
            draw(report, Path(self.plot))
        failed = report["failed"]
        if self.as_json:
            print_json(report.pop("schema"), report)
        else:
            show(report)
            for what in ("skipped", "failed"):
                for entry in report[what]:
                    note(f"{what}: {entry['case']}: {entry['reason']}")
        if failed:
            raise WrongResultError("; ".join(f["case"] + ": " + f["reason"] for f in failed))


def print_summary(report: Report, name_of: Callable[[dict[str, Any]], str]) -> None:
    """Print how each set compares with each peer. name_of: the shape that loses, for people."""
    print_table(
        "Summary",
        ("set", "peer", "problems", "geomean", "min", "losing"),
        [
            (
                s["set"], s["peer"], s["problems"], round(s["geomean"], 4), round(s["min"], 4),
                ", ".join(map(name_of, s["losing"])),
            )
            for s in report["summary"]
        ],
    )  # fmt: skip


def peers_shown(result: dict[str, Any]) -> str:
    """The peers of one result, with their ratios."""
    return ", ".join(f"{p['peer']} {p['ratio']:.3f}" for p in result["peers"])

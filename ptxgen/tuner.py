"""tuner: measure the configs that the cost model ranks highest, and those next to the best.

The tuner knows no GPU: what measures is an argument. Configs are assembled on any executor while
others are measured; measuring is done by one process at a time (a file lock per GPU). Every
measurement goes into the table at once, so a run that was stopped goes on where it was.
"""

import csv
import json
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from ptxgen import selection
from ptxgen.devices import GpuModel
from ptxgen.epilogue import Epilogue
from ptxgen.images import Image, collect, config_hash, submit
from ptxgen.kernels import kernel_for
from ptxgen.kernels.agreement import static_fields
from ptxgen.problem import Gemm
from ptxgen.tuning_table import Environment, Row, TuningTable, config_json, new_row

REPRODUCED = (
    "m", "n", "k", "a", "b", "d", "layout", "scale", "accumulate", "a_stride", "b_stride",
    "d_stride", "alpha", "scale_format",
)  # fmt: skip
"""Fields of a problem that are options of the command line."""
EPILOGUE_REPRODUCED = ("c", "beta", "bias", "bias_dtype", "activation", "amax", "d_scale")
"""Fields of its epilogue that are."""
FINAL_TRIES = 4
"""How often the fastest are measured again while others take their place."""
LOCK_TIMEOUT_S = 3600.0
"""How long to wait for another process that measures on the same GPU."""


@dataclass(frozen=True)
class Outcome:
    """What measuring one config gave."""

    samples: tuple[float, ...]
    """Seconds per call, one per round; empty if it failed."""
    error: str = ""


class Measure(Protocol):
    """Measures configs of one problem against each other."""

    def __call__(self, problem: Gemm, images: Sequence[Image], rounds: int) -> Sequence[Outcome]:
        """Check each config's result, then time all of them in `rounds` rounds; one outcome each.

        A config that fails is an Outcome with `error`, so that the others go on.
        """


@dataclass(frozen=True)
class Effort:
    """How much is tried for one problem."""

    top: int = 16
    """Configs taken from the model's ranking."""
    neighbour_rounds: int = 1
    """How often the neighbours of the best so far are tried."""
    finalists: int = 3
    """Configs that are measured again, more often, at the end."""
    rounds: int = 3
    final_rounds: int = 9
    batch: int = 8
    """Configs that are measured against each other at once."""


@dataclass(frozen=True)
class Event:
    """Progress: one config of one problem was measured, or had been before."""

    problem: Gemm
    config: Any
    seconds: float | None
    error: str
    resumed: bool
    """Whether it was in the table already."""
    problems_done: int
    problems: int


@dataclass(frozen=True)
class Tuned:
    """The outcome for one problem."""

    problem: Gemm
    kernel: str
    config: Any
    """The fastest config; None if none worked."""
    seconds: float | None
    predicted: Any
    """What the cost model alone would have taken."""
    predicted_seconds: float | None
    """What that one takes."""
    measured: int
    """Configs measured now."""
    failed: int
    complete: bool
    """False if time ran out before all that Effort says was tried."""

    @property
    def reproduce(self) -> str:
        """The command that measures this choice again."""
        return reproduction_line(self.problem, self.config)


def tune(
    problems: Sequence[Gemm],
    gpu: GpuModel,
    environment: Environment,
    measure: Measure,
    table: TuningTable,
    executor: Executor,
    *,
    effort: Effort | None = None,
    fresh: bool = False,
    time_budget_s: float = float("inf"),
    report: Callable[[Event], None] = lambda event: None,
    log: Path | None = None,
    lock: Path | None = None,
    chosen: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Tuned]:
    """Find the fastest config of each problem; all measurements go into `table`.

    fresh: measure again what the table has. log: CSV file that every measurement is added to.
    lock: file whose lock is held while measuring; None = one for the device's name in the
    temporary folder. chosen: fields that every config tried must have. A problem for which no time
    is left is not in the result.

    Raises: ConfigError if no kernel serves a problem; OSError if the log cannot be written.
    """
    effort = effort or Effort()
    work = _Work(
        gpu, environment, measure, table, executor, effort, fresh, report, log,
        lock or default_lock(environment.device),
    )  # fmt: skip
    end = clock() + time_budget_s
    fixed = (chosen or {}).items()
    ranked = [
        [
            entry.config
            for entry in selection.rank(problem, gpu)
            if all(getattr(entry.config, name) == value for name, value in fixed)
        ]
        for problem in problems
    ]
    for problem, ranking in zip(problems, ranked, strict=True):  # all of it while the first run
        for config in ranking[: effort.top]:
            work.start(problem, config)
    results = []
    for index, (problem, legal) in enumerate(zip(problems, ranked, strict=True)):
        left = end - clock()
        if left <= 0:
            break
        deadline = clock() + left / (len(problems) - index)
        results.append(work.tune_one(problem, legal, (index, len(problems)), clock, deadline))
    selection.forget()
    return results


def default_lock(device: str) -> Path:
    """The file whose lock is held while something is measured on a device of that name."""
    name = "".join(c if c.isalnum() else "-" for c in device)
    return Path(tempfile.gettempdir()) / f"ptxgen-measure-{name}.lock"


def reproduction_line(problem: Gemm, config: Any) -> str:
    """The shell command that measures `config` on `problem`."""
    words = ["ptxgen", "bench", "gemm"]
    defaults = {f.name: f.default for f in fields(Gemm)}
    for name in REPRODUCED:
        value = getattr(problem, name)
        if name in ("m", "n", "k") or value != defaults[name]:
            words += [f"--{name.replace('_', '-')}", str(value)]
    for name, value in asdict(problem.epilogue).items():
        if name in EPILOGUE_REPRODUCED and value != getattr(Epilogue(), name):
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    if config is not None:
        static = static_fields(problem, type(config))
        chosen = {k: v for k, v in asdict(config).items() if k not in static}
        words += ["--config", json.dumps(chosen, separators=(",", ":"))]
    return shlex.join(words)


class _Work:
    """One call of `tune`: what is being assembled, and what was measured."""

    def __init__(
        self, gpu: GpuModel, environment: Environment, measure: Measure, table: TuningTable,
        executor: Executor, effort: Effort, fresh: bool, report: Callable[[Event], None],
        log: Path | None, lock: Path,
    ) -> None:  # fmt: skip
        self.gpu = gpu
        self.environment = environment
        self.measure = measure
        self.table = table
        self.executor = executor
        self.effort = effort
        self.fresh = fresh
        self.report = report
        self.log = log
        self.lock = lock
        self.futures: dict[Any, Future[dict[str, Any]]] = {}

    def start(self, problem: Gemm, config: Any) -> None:
        """Have a config assembled, once, whatever problems it is tried on."""
        if config not in self.futures:
            kernel = kernel_for(problem, self.gpu.arch).NAME
            self.futures[config] = submit(self.executor, kernel, config)

    def image(self, problem: Gemm, config: Any) -> Image:
        """The assembled config, waited for."""
        self.start(problem, config)
        return collect(kernel_for(problem, self.gpu.arch).NAME, config, self.futures[config])

    def tune_one(
        self, problem: Gemm, legal: list[Any], progress: tuple[int, int],
        clock: Callable[[], float], deadline: float,
    ) -> Tuned:  # fmt: skip
        """Tune one problem; `legal` is the model's ranking."""
        kernel = kernel_for(problem, self.gpu.arch).NAME
        known = self._known(problem, kernel)
        seen: dict[Any, float | None] = {}
        counts = {"measured": 0, "failed": 0, "left_out": 0}

        def try_all(configs: Iterable[Any], rounds: int, again: bool = False) -> None:
            wanted = [c for c in dict.fromkeys(configs) if again or c not in seen]
            for config in wanted:
                row = None if again else known.get(config_json(config))
                if row is not None and row.text_hash == config_hash(kernel, config):
                    seen[config] = row.seconds
                    self._tell(problem, config, row, True, progress)
                else:
                    self.start(problem, config)
            wanted = [c for c in wanted if again or c not in seen]
            for first in range(0, len(wanted), self.effort.batch):
                if clock() > deadline:
                    counts["left_out"] += len(wanted) - first
                    return
                batch = wanted[first : first + self.effort.batch]
                for config, row in zip(batch, self._measure(problem, batch, rounds), strict=True):
                    seen[config] = row.seconds
                    counts["measured"] += 1
                    counts["failed"] += row.seconds is None
                    self._tell(problem, config, row, False, progress)

        for first in range(0, len(legal), self.effort.top):  # further down only if all have failed
            if _fastest(seen) or counts["left_out"]:
                break
            try_all(legal[first : first + self.effort.top], self.effort.rounds)
        for _ in range(self.effort.neighbour_rounds):
            try_all(selection.neighbours(_fastest(seen)[0], legal) if _fastest(seen) else [],
                    self.effort.rounds)  # fmt: skip
        final: set[Any] = set()
        for _ in range(FINAL_TRIES):  # a short measurement may flatter: the winner must be a final
            front = [*_fastest(seen)[: self.effort.finalists], *(legal[:1] if not final else [])]
            front = [config for config in dict.fromkeys(front) if seen.get(config)]
            if not counts["measured"] or final.issuperset(front):
                break
            try_all(front, self.effort.final_rounds, again=True)
            final.update(front)
        best = _fastest(seen)
        predicted = legal[0] if legal else None
        return Tuned(
            problem, kernel, best[0] if best else None, seen[best[0]] if best else None,
            predicted, seen.get(predicted), counts["measured"], counts["failed"],
            not counts["left_out"],
        )  # fmt: skip

    def _known(self, problem: Gemm, kernel: str) -> dict[str, Row]:
        """What the table has of this problem, measured in this environment, by config."""
        if self.fresh:
            return {}
        return {
            row.config: row
            for row in self.table.rows(problem, self.environment.device)
            if row.kernel == kernel and not row.differences(self.environment)
        }

    def _measure(self, problem: Gemm, configs: Sequence[Any], rounds: int) -> list[Row]:
        """One row per config, measured or failed, which are then in table and log."""
        images = [self.image(problem, config) for config in configs]
        good = [image for image in images if not image.error]
        outcomes: dict[Any, Outcome] = {i.config: Outcome((), i.error) for i in images if i.error}
        if good:
            from filelock import FileLock

            with FileLock(self.lock, timeout=LOCK_TIMEOUT_S):
                found = self.measure(problem, good, rounds)
            outcomes |= {i.config: o for i, o in zip(good, found, strict=True)}
        rows = []
        for image in images:
            outcome = outcomes[image.config]
            environment = replace(self.environment, assembler=image.assembler)
            row = new_row(
                image.kernel, image.text_hash, problem, environment, image.config,
                outcome.samples, outcome.error,
            )  # fmt: skip
            self.table.put(row)
            self._write_log(problem, image, row)
            rows.append(row)
        return rows

    def _tell(
        self, problem: Gemm, config: Any, row: Row, resumed: bool, progress: tuple[int, int]
    ) -> None:
        self.report(Event(problem, config, row.seconds, row.error, resumed, *progress))

    def _write_log(self, problem: Gemm, image: Image, row: Row) -> None:
        if self.log is None:
            return
        entry = {
            "measured_at": f"{row.measured_at:.0f}",
            "device": row.device,
            **{name: getattr(problem, name) for name in ("m", "n", "k")},
            "config": str(image.config),
            "us": f"{row.seconds * 1e6:.3f}" if row.seconds else "",
            "spread": f"{row.spread:.4f}",
            "tflops": f"{problem.flop / row.seconds / 1e12:.1f}" if row.seconds else "",
            "registers": image.registers,
            "assembler": row.assembler,
            "error": row.error,
        }
        new = not self.log.exists() or not self.log.stat().st_size
        with self.log.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(entry))
            if new:
                writer.writeheader()
            writer.writerow(entry)


def _fastest(seen: dict[Any, float | None]) -> list[Any]:
    """Configs that worked, the fastest first."""
    times = [(seconds, str(config), config) for config, seconds in seen.items() if seconds]
    return [config for _, _, config in sorted(times, key=lambda t: t[:2])]

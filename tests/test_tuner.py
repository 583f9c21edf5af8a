"""The tuner, with a measure function that knows the truth."""

import csv
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxgen import selection, tuner
from ptxgen.devices import GPU_MODELS
from ptxgen.errors import ArgumentError
from ptxgen.executors import executor_of
from ptxgen.images import Image
from ptxgen.problem import Gemm
from ptxgen.tuner import Effort, Event, Outcome, Tuned, tune
from ptxgen.tuning_table import Environment, TuningTable

H200 = GPU_MODELS["H200"]
PROBLEM = Gemm(1111, 2224, 3344, "e4m3", "e4m3", "bf16", scale="tensor")
OTHER = replace(PROBLEM, m=77)
HERE = Environment("H200", "1980 MHz", "13.0")
EFFORT = Effort(top=4, neighbour_rounds=1, finalists=2, rounds=2, final_rounds=3, batch=3)


class FakeMeasure:
    """Seconds from a function of the config; remembers what was asked."""

    def __init__(self, seconds: Callable[[Any], float], failing: Sequence[int] = ()) -> None:
        self.seconds = seconds
        self.failing = failing
        """tile_n of configs that fail."""
        self.asked: list[tuple[Gemm, Any]] = []

    def __call__(self, problem: Gemm, images: Sequence[Image], rounds: int) -> list[Outcome]:
        self.asked += [(problem, image.config) for image in images]
        return [
            Outcome((), "wrong result")
            if image.config.tile_n in self.failing
            else Outcome((self.seconds(image.config),) * rounds)
            for image in images
        ]


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture(autouse=True)
def quick_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images without an assembler; the text and its hash are real."""
    from ptxgen.images import config_hash

    class Done:
        pass

    monkeypatch.setattr(tuner, "submit", lambda executor, kernel, config: Done())
    monkeypatch.setattr(
        tuner,
        "collect",
        lambda kernel, config, future: Image(
            kernel, config, b"", config_hash(kernel, config), "ptxas test", 168, ""
        ),
    )


def run(
    tmp_path: Path, pool: Executor, measure: FakeMeasure, problems: Sequence[Gemm] = (PROBLEM,),
    **options: Any,
) -> list[Tuned]:  # fmt: skip
    table = TuningTable(tmp_path / "table.sqlite3")
    options = {"effort": EFFORT, "lock": tmp_path / "lock", **options}
    return tune(problems, H200, HERE, measure, table, pool, **options)


def narrow_is_fast(config: Any) -> float:
    """Different for configs that differ, so that one of them is the fastest."""
    steps = (config.cluster_m, config.split_k, config.stages, config.store == "tma")
    return float(1e-6 * config.tile_n + sum(1e-7 * s / 10**i for i, s in enumerate(steps)))


def test_the_fastest_measured_config_is_found_beyond_the_models_choice(
    tmp_path: Path, pool: Executor
) -> None:
    measure = FakeMeasure(narrow_is_fast)
    (found,) = run(tmp_path, pool, measure)
    ranked = [r.config for r in selection.rank(PROBLEM, H200)]
    tried = {config for _, config in measure.asked}
    assert found.config == min(tried, key=lambda c: (narrow_is_fast(c), str(c)))
    assert narrow_is_fast(found.config) < min(map(narrow_is_fast, ranked[: EFFORT.top]))


def test_a_config_that_one_short_measurement_flatters_does_not_win(
    tmp_path: Path, pool: Executor
) -> None:
    seen: set[Any] = set()

    def flattered_once(config: Any) -> float:
        first = config not in seen
        seen.add(config)
        return narrow_is_fast(config) * (0.1 if first and config.tile_m == 64 else 1.0)

    (found,) = run(tmp_path, pool, FakeMeasure(flattered_once))
    best = min(seen, key=lambda c: (narrow_is_fast(c), str(c)))
    assert found.seconds == pytest.approx(narrow_is_fast(found.config))
    assert narrow_is_fast(found.config) <= 1.1 * narrow_is_fast(best)


def test_a_second_run_measures_nothing_and_finds_the_same(tmp_path: Path, pool: Executor) -> None:
    first = run(tmp_path, pool, FakeMeasure(narrow_is_fast))
    again = FakeMeasure(narrow_is_fast)
    (second,) = run(tmp_path, pool, again)
    assert again.asked == []
    assert second.config == first[0].config


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path, pool: Executor) -> None:
    ticks = iter([0.0, *[0.0] * 2, *[1e9] * 20])
    first = FakeMeasure(narrow_is_fast)
    (stopped,) = run(tmp_path, pool, first, time_budget_s=10.0, clock=lambda: next(ticks))
    second = FakeMeasure(narrow_is_fast)
    (finished,) = run(tmp_path, pool, second)
    whole = FakeMeasure(narrow_is_fast)
    (at_once,) = run(tmp_path / "other", pool, whole)
    assert not stopped.complete
    assert finished.complete
    assert finished.config == at_once.config


@pytest.mark.parametrize("field", ["clocks", "driver"])
def test_what_was_measured_under_other_conditions_is_measured_again(
    tmp_path: Path, pool: Executor, field: str
) -> None:
    run(tmp_path, pool, FakeMeasure(narrow_is_fast))
    again = FakeMeasure(narrow_is_fast)
    table = TuningTable(tmp_path / "table.sqlite3")
    elsewhere = replace(HERE, **{field: "another"})
    tune([PROBLEM], H200, elsewhere, again, table, pool, effort=EFFORT, lock=tmp_path / "lock")
    assert again.asked


def test_failing_configs_are_reported_and_never_win(tmp_path: Path, pool: Executor) -> None:
    best = min(r.config.tile_n for r in selection.rank(PROBLEM, H200)[: EFFORT.top])
    events: list[Event] = []
    (found,) = run(tmp_path, pool, FakeMeasure(narrow_is_fast, [best]), report=events.append)
    assert found.failed > 0
    assert found.config.tile_n != best
    assert any(event.error == "wrong result" for event in events)


def test_selection_takes_what_was_tuned(
    tmp_path: Path, pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXGEN_TUNING_TABLE", str(tmp_path / "table.sqlite3"))
    (found,) = run(tmp_path, pool, FakeMeasure(narrow_is_fast))
    assert selection.choose(PROBLEM) == found.config
    selection.forget()


def test_fixed_fields_narrow_the_search(tmp_path: Path, pool: Executor) -> None:
    measure = FakeMeasure(narrow_is_fast)
    run(tmp_path, pool, measure, chosen={"tile_m": 64})
    assert {config.tile_m for _, config in measure.asked} == {64}


def test_problems_without_time_are_left_out(tmp_path: Path, pool: Executor) -> None:
    ticks = iter([0.0, 0.0, *[100.0] * 50])
    found = run(
        tmp_path, pool, FakeMeasure(narrow_is_fast), (PROBLEM, OTHER), time_budget_s=10.0,
        clock=lambda: next(ticks),
    )  # fmt: skip
    assert [t.problem for t in found] == [PROBLEM]


def test_every_measurement_is_a_line_of_the_log(tmp_path: Path, pool: Executor) -> None:
    measure = FakeMeasure(narrow_is_fast)
    run(tmp_path, pool, measure, log=tmp_path / "log.csv")
    with (tmp_path / "log.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["config"] for line in lines] == [str(config) for _, config in measure.asked]


def test_the_reproduction_line_describes_the_same_problem_and_config(
    tmp_path: Path, pool: Executor
) -> None:
    from ptxgen.commands.bench import command, config_of
    from ptxgen.commands.options import select
    from ptxgen.kernels import gemm_sm90

    (found,) = run(tmp_path, pool, FakeMeasure(narrow_is_fast))
    words = shlex.split(found.reproduce)
    context = command.make_context("bench", words[2:])
    assert select(context.params).problem == PROBLEM
    config_text = context.params["config_json"]
    assert config_of(gemm_sm90, PROBLEM, config_text) == found.config
    assert json.loads(config_text)["tile_n"] == found.config.tile_n


def test_measuring_waits_for_the_lock_of_the_gpu(tmp_path: Path, pool: Executor) -> None:
    from filelock import FileLock, Timeout

    def seconds(config: Any) -> float:
        with pytest.raises(Timeout), FileLock(tmp_path / "lock", timeout=0):
            pass
        return narrow_is_fast(config)

    run(tmp_path, pool, FakeMeasure(seconds))


def test_executors_are_named_and_bad_names_refused() -> None:
    with executor_of("threads:2") as executor:
        assert executor.submit(lambda: 3).result() == 3
    for bad in ("threads:0", "threads:x", "nosuchmodule:thing", "json:dumps"):
        with pytest.raises((ArgumentError, TypeError)), executor_of(bad):
            pass

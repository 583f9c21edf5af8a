"""Selection: measurements first, then the model; and its reasons."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxgen import selection
from ptxgen.devices import GPU_MODELS
from ptxgen.epilogue import Epilogue
from ptxgen.errors import ArgumentError, ConfigError
from ptxgen.images import config_hash
from ptxgen.kernels import KERNELS, gemm_sm90
from ptxgen.problem import Gemm
from ptxgen.tuning_table import (
    Environment,
    Row,
    TuningTable,
    best_rows,
    new_row,
    read_rows,
    shipped_rows,
    write_rows,
)

H200 = GPU_MODELS["H200"]
# No shape that anybody tunes, so that no shipped table has it.
PROBLEM = Gemm(1111, 2224, 3344, "e4m3", "e4m3", "bf16", scale="tensor")
HERE = Environment("H200", "1980 MHz, 700 W", "13.0", "ptxas 13.0.88")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TuningTable]:
    """An empty user table, and nothing remembered before or after."""
    path = tmp_path / "tuning.sqlite3"
    monkeypatch.setenv("PTXGEN_TUNING_TABLE", str(path))
    selection.forget()
    yield TuningTable(path)
    selection.forget()


def row_of(config: gemm_sm90.Config, seconds: float, environment: Environment = HERE) -> Row:
    text = config_hash("gemm_sm90", config)
    return new_row("gemm_sm90", text, PROBLEM, environment, config, (seconds,))


def other_config() -> gemm_sm90.Config:
    """A config that the model does not choose."""
    return gemm_sm90.default_config(PROBLEM, tile_m=64, tile_n=64, stages=3)


def test_without_measurements_the_model_chooses_its_cheapest(table: TuningTable) -> None:
    found = selection.choice(PROBLEM)
    assert found.source == "model"
    assert found.config == selection.rank(PROBLEM, H200)[0].config


def test_the_fastest_measured_config_wins_over_the_model(table: TuningTable) -> None:
    table.put(row_of(other_config(), 5e-6))
    table.put(row_of(replace(other_config(), stages=4), 7e-6))
    selection.forget()
    found = selection.choice(PROBLEM, environment=HERE)
    assert (found.source, found.config, found.seconds) == ("user table", other_config(), 5e-6)


@pytest.mark.parametrize("changed", ["clocks", "driver", "assembler"])
def test_a_row_of_this_environment_wins_over_a_faster_one_of_another(
    table: TuningTable, changed: str
) -> None:
    table.put(row_of(other_config(), 9e-6))
    elsewhere = replace(HERE, **{changed: "another"})
    table.put(row_of(replace(other_config(), stages=4), 5e-6, elsewhere))
    selection.forget()
    assert selection.choice(PROBLEM, environment=HERE).config == other_config()


def test_a_row_of_another_kernel_text_is_taken_last_and_said(table: TuningTable) -> None:
    table.put(replace(row_of(other_config(), 5e-6), text_hash="of an older kernel"))
    selection.forget()
    assert "another kernel text" in selection.choice(PROBLEM, environment=HERE).why
    table.put(row_of(replace(other_config(), stages=4), 9e-6))
    selection.forget()
    assert selection.choice(PROBLEM, environment=HERE).config.stages == 4


def test_a_failed_row_is_never_chosen(table: TuningTable) -> None:
    text = config_hash("gemm_sm90", other_config())
    table.put(new_row("gemm_sm90", text, PROBLEM, HERE, other_config(), (), "spills"))
    selection.forget()
    assert selection.choice(PROBLEM).source == "model"


def test_a_row_whose_config_is_no_longer_legal_is_passed_over(table: TuningTable) -> None:
    illegal = replace(other_config(), stages=31)
    hash_of_other = config_hash("gemm_sm90", other_config())
    table.put(new_row("gemm_sm90", hash_of_other, PROBLEM, HERE, illegal, (1e-6,)))
    selection.forget()
    assert selection.choice(PROBLEM).source == "model"


def test_a_measurement_of_one_shape_says_nothing_of_another(table: TuningTable) -> None:
    table.put(row_of(other_config(), 5e-6))
    selection.forget()
    assert selection.choice(replace(PROBLEM, m=PROBLEM.m + 1)).source == "model"


def test_a_shipped_row_serves_block_scales_in_any_layout(table: TuningTable) -> None:
    fields: dict[str, Any] = {"scale": "block", "accumulate": "promoted"}
    measured = Gemm(16, 2112, 7168, "e4m3", "e4m3", "bf16", **fields, scale_a_strides=(1, 16))
    plain = Gemm(16, 2112, 7168, "e4m3", "e4m3", "bf16", **fields)
    assert selection.choice(measured).source == "shipped table"
    assert "laid out otherwise" in selection.choice(plain).why
    assert selection.choice(plain).config == selection.choice(measured).config


@pytest.mark.parametrize("shape", [(2224, 3344), (576, 7168), (7168, 2048)])
def test_batch_invariance_fixes_the_parts_of_k_for_all_m(
    table: TuningTable, shape: tuple[int, int]
) -> None:
    n, k = shape
    problems = [replace(PROBLEM, m=m, n=n, k=k, a_stride=0, b_stride=0, d_stride=0)
                for m in (1, 17, 64, 128, 300, 8192)]  # fmt: skip
    configs = [selection.choose(problem, batch_invariant=True) for problem in problems]
    assert len({selection.sums_of(c, p) for c, p in zip(configs, problems, strict=True)}) == 1
    assert configs[0].tile_m < configs[-1].tile_m


def test_batch_invariance_fixes_the_parts_of_k_whatever_the_stride_of_an_a_stored_by_columns(
    table: TuningTable,
) -> None:
    problems = [Gemm(m, 576, 7168, layout="tt", a_stride=m + pad)
                for m in (8, 64, 8192) for pad in (0, 8)]  # fmt: skip
    configs = [selection.choose(problem, batch_invariant=True) for problem in problems]
    assert len({selection.sums_of(c, p) for c, p in zip(configs, problems, strict=True)}) == 1


def test_batch_invariance_passes_over_faster_measured_configs_that_sum_otherwise(
    table: TuningTable,
) -> None:
    split = gemm_sm90.default_config(PROBLEM, tile_m=64, tile_n=64, split_k=2)
    assert len(selection.invariant_sums(PROBLEM, H200)[0]) == 1
    table.put(row_of(split, 1e-6))
    table.put(row_of(other_config(), 2e-6))
    selection.forget()
    assert selection.choose(PROBLEM) == split
    assert selection.choose(PROBLEM, batch_invariant=True) == other_config()


def test_a_table_that_cannot_be_read_is_said_and_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broken.sqlite3"
    path.write_text("this is no database, and long enough to be seen as none" * 20)
    monkeypatch.setenv("PTXGEN_TUNING_TABLE", str(path))
    selection.forget()
    with pytest.warns(selection.TuningWarning, match="PTXGEN_TUNING_TABLE"):
        assert selection.choice(PROBLEM).source == "model"
    selection.forget()


def test_a_table_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "newer.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(ArgumentError, match="schema version 99"):
        TuningTable(path)


def test_rows_survive_the_way_to_json_and_back(table: TuningTable) -> None:
    rows = [row_of(other_config(), 5e-6), row_of(replace(other_config(), stages=4), 7e-6)]
    assert read_rows(write_rows(rows)) == rows
    assert best_rows(rows) == rows[:1]


def test_explanation_names_a_reason_for_every_config_of_the_grid(table: TuningTable) -> None:
    found = selection.explain(PROBLEM)
    total = sum(1 for _ in gemm_sm90.configs(PROBLEM))
    assert len(found.ranked) + len(found.refused) == total
    assert found.ranked[0].config == found.choice.config
    assert all(refused.reason for refused in found.refused)


def test_d_that_tma_cannot_address_gets_a_config_that_stores_without_it(
    table: TuningTable,
) -> None:
    assert not selection.choose(replace(PROBLEM, n=2223)).stores_by_tma


def test_an_architecture_without_a_kernel_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="sm_70"):
        selection.choose(PROBLEM, replace(H200, arch="sm_70"))


def test_a_gpu_that_the_model_was_not_fitted_to_gets_the_default(table: TuningTable) -> None:
    found = selection.choice(PROBLEM, "B200")
    assert found.source == "default"
    assert found.config == KERNELS[found.kernel].default_config(PROBLEM, target="sm_100a")


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_configs_of_every_kernel_are_chosen(table: TuningTable, kernel: str) -> None:
    target = KERNELS[kernel].TARGETS[0]
    gpu = replace(H200, arch=target)
    problem = Gemm(1111, 2224, 3344, "e4m3", "e4m3")
    if kernel == "gemm_sm100_blockscaled":
        problem = replace(problem, scale="mx32")
    elif target == "sm_80":
        problem = replace(problem, a="bf16", b="bf16")
    found = selection.choice(problem, gpu)
    assert (found.kernel, getattr(found.config, "target", target)) == (kernel, target)
    assert config_hash(kernel, found.config)


def test_every_shipped_row_is_legal_for_its_problem() -> None:
    for name in GPU_MODELS:
        for row in shipped_rows(name):
            fields = json.loads(row.problem)
            strides = {name: tuple(x) for name, x in fields.items() if isinstance(x, list)}
            problem = Gemm(**{**fields, **strides, "epilogue": Epilogue()})
            gemm_sm90.plan(problem, gemm_sm90.Config(**row.config_fields()))


def test_neighbours_are_legal_and_one_step_away(table: TuningTable) -> None:
    legal = [r.config for r in selection.rank(PROBLEM, H200)]
    found = selection.neighbours(legal[0], legal)
    assert found
    for other in found:
        other.check()
        assert other != legal[0]
        assert abs(other.tile_n - legal[0].tile_n) <= 32


@pytest.mark.parametrize(("k", "narrowest"), [(3344, 128), (64, 64), (32, 32)])
def test_swizzles_narrower_than_k_fills_are_not_ranked(
    table: TuningTable, k: int, narrowest: int
) -> None:
    ranked = selection.rank(replace(PROBLEM, k=k), H200)
    assert min(r.config.swizzle_bytes for r in ranked) == narrowest

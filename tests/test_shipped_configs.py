"""Configs in the tables that ship: assembled cleanly, clean under the strict checker, right."""

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from config_samples import covering_sample

from ptxgen.emulator import EmulatorDevice
from ptxgen.emulator.options import Options

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "shipped_configs.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="not a checkout: no benchmarks folder")
CI_SAMPLE = 3
"""Configs that CI looks at; `--all` looks at every one."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shipped_configs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the script runs on a GPU runs on the emulator."""
    from ptxgen.launcher import device

    found = SimpleNamespace(get=lambda: EmulatorDevice(Options(exact=True)))
    monkeypatch.setattr(device, "GpuDevice", found)


STEPS = ("assemble", "strict", "run")


def test_a_sample_of_shipped_configs_is_clean_and_right(script: ModuleType, emulated: None) -> None:
    configs = dict(map(reversed, script.shipped_configs()))
    sample = covering_sample(list(configs), CI_SAMPLE)
    rows = script.look([(configs[config], config) for config in sample], STEPS)
    assert [row for row in rows if not row["ok"]] == []


@pytest.mark.slow
def test_every_shipped_config_is_clean_and_right(script: ModuleType, emulated: None) -> None:
    rows = script.look(script.shipped_configs(), STEPS)
    assert [row for row in rows if not row["ok"]] == []


def test_small_problems_of_shipped_configs_have_tails_and_reuse_every_stage(
    script: ModuleType,
) -> None:
    for _, config in script.shipped_configs():
        problem = script.small_problem(config)
        tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
        assert problem.n % config.tile_n
        assert problem.k % config.tile_k
        assert (
            tiles // (config.cluster_m * config.cluster_n) * config.tiles_per_part(problem.k)
            > config.stages
        )


def test_a_fault_is_told_beside_the_config(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(script.ACTIONS, "assemble", lambda kernel, config: "8 bytes of spills")
    (row,) = script.look(script.shipped_configs()[:1], ["assemble"])
    assert not row["ok"]
    assert row["assemble"] == "8 bytes of spills"

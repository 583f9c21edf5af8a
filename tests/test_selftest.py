"""The selftest sweeps every kind, outlives cases that hang or fault, and says what came of each."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ptxgen.cli import group
from ptxgen.emulator import EmulatorDevice
from ptxgen.selftest import sweep
from ptxgen.selftest.cases import TOKENS, cases
from ptxgen.selftest.sweep import Outcome, run_case, sweep_in_children

TARGETS = ("sm_90a", "sm_100a", "sm_100f", "sm_103a", "sm_120a")


@pytest.mark.parametrize("target", TARGETS)
def test_every_case_has_a_name_of_its_own(target: str) -> None:
    names = [case.name for case in cases(target)]
    assert len(set(names)) == len(names) >= 60


def test_a_blackwell_sweep_has_every_kind_group_layout_and_token_count() -> None:
    configs = [case.config for case in cases("sm_100a")]
    kinds = {"f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"}
    assert {c.kind for c in configs} == kinds
    assert {(c.cta_group, c.accumulator.letter) for c in configs} == {
        (1, "D"), (1, "F"), (2, "A"), (2, "B")
    }  # fmt: skip
    assert {c.layout for c in configs} == {"nt", "nn", "tn", "tt"}
    swapped = {case.problem.m for case in cases("sm_100a") if case.config.swap_ab}
    assert set(TOKENS) <= swapped


@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
def test_the_command_reports_a_clean_sweep_of_the_emulator(target: str, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    arguments = ["selftest", "--arch", target, "--device", "emulator", "--out", str(out)]
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 0, done.output
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["ok"]
    assert report["target"] == target
    assert report["runs"] == len(report["outcomes"]) >= 20
    assert all(o["exact_elements"] and not o["exact_mismatches"] for o in report["outcomes"])


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_case_is_right_on_the_emulator(target: str) -> None:
    device = EmulatorDevice()
    found = [run_case(case, device, "integers") for case in cases(target)]
    assert [(o.name, o.error) for o in found if not o.ok] == []


def test_a_wrong_result_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_case

    def spoilt(*arguments: Any) -> Outcome:
        return replace(real(*arguments), ok=False, error="spoilt")

    monkeypatch.setattr(sweep, "run_case", spoilt)
    monkeypatch.setattr(sweep, "cases", lambda target, small: cases("sm_120a")[:2])
    arguments = ["selftest", "--arch", "sm_120a", "--device", "emulator", "--json"]
    assert CliRunner().invoke(group, arguments).exit_code == 5


CHILD = """
import json, sys, time
target, size, gpu, first = sys.argv[1:]
for number in range(int(first), 6):
    if number == 1:
        time.sleep(60)
    if number == 3:
        sys.exit("illegal instruction")
    outcome = {"name": str(number), "kernel": "k", "data": "integers", "ok": True}
    print(json.dumps(outcome), flush=True)
"""


def test_the_sweep_goes_on_behind_cases_that_hang_or_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = [(cases("sm_120a")[i], "integers") for i in range(6)]
    monkeypatch.setattr(sweep, "runs", lambda *_: wanted)
    found = list(sweep_in_children("sm_120a", True, 0, 1.5, (sys.executable, "-c", CHILD)))
    assert [o.ok for o in found] == [True, False, True, False, True, True]
    assert "hangs" in found[1].error
    assert "illegal instruction" in found[3].error


def test_the_sweep_gives_up_where_every_child_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [(case, "integers") for case in cases("sm_120a")]
    monkeypatch.setattr(sweep, "runs", lambda *_: wanted)
    found = list(sweep_in_children("sm_120a", True, 0, 5, (sys.executable, "-c", "exit(3)")))
    assert len(found) == sweep.MOST_CHILDREN
    assert "gave up" in found[-1].error

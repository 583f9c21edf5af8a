"""The fixture that other projects' tests call."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from litmus_cases import FOLDER

NAME = "tma_store_without_proxy_fence"

TESTS = f'''
import json
from pathlib import Path

FOLDER = Path({str(FOLDER)!r})
LAUNCH = json.loads((FOLDER / "{NAME}.json").read_text())["launch"]

def test_fixed(ptx_check):
    data = bytes(range(256)) * 8
    report = ptx_check(FOLDER / "{NAME}.ok.ptx", LAUNCH, {{"in": data}}, strict=True)
    assert report.outputs["out"] == data

def test_buggy(ptx_check):
    ptx_check((FOLDER / "{NAME}.bug.ptx").read_text(), json.dumps(LAUNCH))

def test_allowed(ptx_check):
    ptx_check(FOLDER / "{NAME}.bug.ptx", LAUNCH, allow=["PROXY-MISSING"])

def test_expected(ptx_check):
    assert ptx_check.report(FOLDER / "{NAME}.bug.ptx", LAUNCH).codes == ("PROXY-MISSING",)
'''


def pytest_of_another_project(folder: Path) -> str:
    (folder / "test_kernels.py").write_text(TESTS, encoding="utf-8")
    installed = any(e.value == "ptxgen.pytest_plugin" for e in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "ptxgen.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout


def test_the_fixture_fails_a_test_with_code_line_and_fix(tmp_path: Path) -> None:
    output = pytest_of_another_project(tmp_path)
    assert "1 failed, 3 passed" in output
    failure = next(line for line in output.splitlines() if "PROXY-MISSING" in line)
    assert "line 38" in failure
    assert "fix: execute fence.proxy.async" in output


def test_the_plugin_is_registered_with_pytest() -> None:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.pytest11]\nptxgen = "ptxgen.pytest_plugin"' in text


def test_the_plugin_imports_nothing_heavy() -> None:
    code = "import sys, ptxgen.pytest_plugin; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_launch_that_is_no_launch_is_an_error_of_ours() -> None:
    from ptxgen.errors import LaunchError
    from ptxgen.pytest_plugin import PtxCheck

    with pytest.raises(LaunchError, match="must be"):
        PtxCheck().report("", {"schema": "other"})

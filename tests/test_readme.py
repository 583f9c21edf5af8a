"""The README's examples run, and its table names what there is."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ptxgen.kernels import GROUPED_KERNELS, KERNELS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = {
    title: (language, code)
    for title, language, code in re.findall(
        r"^### (.*?)\n.*?^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL
    )
}
"""Heading -> language and text of the first block below it."""


def test_there_are_six_examples() -> None:
    assert list(EXAMPLES) == ["Terminal", "numpy", "CuPy", "Raw pointers", "Groups", "Emulator"]


@pytest.mark.parametrize("title", ["numpy", "Raw pointers", "Groups", "Emulator"])
def test_python_example_runs(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    language, code = EXAMPLES[title]
    assert language == "python"
    exec(compile(code, f"README.md, {title}", "exec"), {})
    if title == "Emulator":
        assert "waits for parity" in capsys.readouterr().out


def test_cupy_example_runs() -> None:
    code = compile(EXAMPLES["CuPy"][1], "README.md, CuPy", "exec")
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("CuPy finds no GPU")
    exec(code, {})


def test_terminal_example_runs(tmp_path: Path) -> None:
    lines = re.findall(r"^\$ ptxgen (.*)$", EXAMPLES["Terminal"][1], re.MULTILINE)
    assert lines
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for line in lines:
        done = subprocess.run(
            [sys.executable, "-m", "ptxgen", *shlex.split(line)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}: {done.stderr}"


def test_tables_name_every_kernel_and_target() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| (sm_[^|]*) \|", README, re.MULTILINE))
    assert {name: tuple(targets.split(", ")) for name, targets in rows.items()} == {
        name: kernel.TARGETS for name, kernel in (KERNELS | GROUPED_KERNELS).items()
    }


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_links_and_named_files_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []
    named = re.findall(r"`((?:ptxgen|templates|tests|launcher|docs|scripts)/[\w/.]+)`", text)
    assert {n for n in named if not (ROOT / n).exists() and not re.search("[A-Z]{4}", n)} == set()

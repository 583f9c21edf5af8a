"""What is built from the tree, and where it works."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and an sdist, built from a copy of the files that git knows."""
    folder = tmp_path_factory.mktemp("build")
    source, out = folder / "source", folder / "out"
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout  # fmt: skip
    for name in files.decode().split("\0"):
        if name and os.path.lexists(ROOT / name):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_symlink():
                target.symlink_to(os.readlink(ROOT / name))
            else:
                target.write_bytes((ROOT / name).read_bytes())
    code = (
        "import sys; from setuptools import build_meta as b; out = sys.argv[1]; "
        "b.build_wheel(out); b.build_sdist(out)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)], cwd=source, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


def wheel_names(built: Path) -> set[str]:
    (wheel,) = built.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def expected_files() -> set[str]:
    """What the package holds, through the links."""
    names = {"ptxgen/py.typed"}
    for folder, _, files in os.walk(ROOT / "ptxgen", followlinks=True):
        for name in files:
            if name.endswith((".py", ".j2", ".json")):
                names.add(str((Path(folder) / name).relative_to(ROOT)))
    return names


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    names = {n for n in wheel_names(built) if ".dist-info/" not in n}
    assert names == expected_files()


@pytest.mark.slow
def test_the_sdist_holds_what_the_wheel_is_built_from(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert all(m.isfile() or m.isdir() for m in members), "links would dangle"
    names = {m.name.partition("/")[2] for m in members}
    assert expected_files() | {"cli.py", "pyproject.toml", "LICENSE", "README.md"} <= names


@pytest.mark.slow
def test_the_wheel_emits_ptx_away_from_the_tree(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-m", "ptxgen", "emit", "gemm"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ".visible .entry gemm_sm90_" in done.stdout


@pytest.mark.parametrize("link", ["cli.py", "launcher", "templates"])
def test_the_links_of_the_package_are_in_the_tree(link: str) -> None:
    assert os.readlink(ROOT / "ptxgen" / link) == f"../{link}"


def test_a_bare_checkout_runs_without_installing() -> None:
    done = subprocess.run(
        [sys.executable, "cli.py", "--version"], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.startswith("ptxgen ")

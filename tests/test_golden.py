"""The rendered text of typical kernels, kept as files that people can read and review."""

import difflib

import pytest
from golden_kernels import FOLDER, golden_kernels

KERNELS = golden_kernels()


@pytest.mark.parametrize("name", KERNELS)
def test_rendering_reproduces_the_golden_file(name: str) -> None:
    kept = (FOLDER / f"{name}.ptx").read_text(encoding="utf-8")
    now = KERNELS[name].text()
    difference = "\n".join(
        difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", lineterm="", n=1)
    )
    assert not difference, f"python tests/golden_kernels.py accepts this:\n{difference}"


def test_no_golden_file_is_orphaned() -> None:
    assert {path.stem for path in FOLDER.glob("*.ptx")} == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_a_golden_file_says_what_it_is_before_it_begins(name: str) -> None:
    header = (FOLDER / f"{name}.ptx").read_text(encoding="utf-8").split(".version")[0]
    for topic in ("kernel", "types", "tile", "shared memory", "warps"):
        assert f"// {topic}" in header

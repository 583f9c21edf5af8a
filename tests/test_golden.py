"""The rendered text of typical kernels, kept as files that people can read and review."""

import difflib

import pytest
from golden_kernels import FOLDER, golden_kernels

from ptxgen.emulator.flow import reads, writes
from ptxgen.ptx.module import Instruction
from ptxgen.ptx.parser import parse

KERNELS = golden_kernels()
ACTING = {
    "activemask", "atom", "bar", "barrier", "clusterlaunchcontrol", "elect", "match", "mbarrier",
    "redux", "shfl", "tcgen05", "vote", "wgmma",
}  # fmt: skip
"""What does more than write registers."""


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


@pytest.mark.parametrize("name", KERNELS)
def test_every_instruction_of_a_golden_file_serves_a_store_a_branch_or_a_barrier(name: str) -> None:
    body = parse((FOLDER / f"{name}.ptx").read_text(encoding="utf-8")).entry().body
    writers: dict[str, list[Instruction]] = {}
    for instruction in body:
        for register in writes(instruction):
            writers.setdefault(register, []).append(instruction)
    found = [i for i in body if i.name in ACTING or not writes(i)]
    serving = {i.line for i in found}
    while found:
        for register in reads(found.pop()):
            new = [i for i in writers.pop(register, []) if i.line not in serving]
            serving |= {i.line for i in new}
            found += new
    assert [i.text for i in body if i.line not in serving] == []

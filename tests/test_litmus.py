"""Hazards re-enacted in pairs of small kernels, and kernels that only look hazardous."""

import difflib
import re

import numpy as np
import pytest
from litmus_cases import FOLDER, SCHEDULES, Litmus, cases, outputs

from ptxgen.assembler import assemble
from ptxgen.errors import ToolMissingError

CASES = cases()
PAIRS = [c for c in CASES if not c.is_trap]
TRAPS = [c for c in CASES if c.is_trap]


def named(some: list[Litmus]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", some, ids=[c.name for c in some])


def code_lines(text: str) -> list[str]:
    """The text without comments, declarations of registers and blank lines."""
    lines = (re.sub(r"//.*", "", line).strip() for line in text.splitlines())
    joined = re.sub(r"\.reg [^;]*;", "", "\n".join(lines))
    return [line for line in joined.splitlines() if line]


def test_the_suite_is_as_large_as_promised() -> None:
    assert len(PAIRS) >= 30
    assert len(TRAPS) >= 15


def test_no_file_of_the_suite_is_orphaned() -> None:
    known = {f"{c.name}.json" for c in CASES} | {f"{c.name}.ptx" for c in TRAPS}
    known |= {f"{c.name}.{form}.ptx" for c in PAIRS for form in ("bug", "ok")}
    assert {path.name for path in FOLDER.iterdir()} == known


@named(PAIRS)
def test_the_forms_of_a_pair_differ_in_the_hazard_alone(case: Litmus) -> None:
    bug, fixed = code_lines(case.text("bug")), code_lines(case.text("ok"))
    changed = [
        line
        for line in difflib.ndiff(bug, fixed)
        if line[:2] in ("- ", "+ ") and line[2:] not in "{}"
    ]
    assert 1 <= len(changed) <= 9


@named(CASES)
def test_every_form_assembles(case: Litmus) -> None:
    for form in ("bug", "ok"):
        try:
            assemble(case.text(form))
        except ToolMissingError as error:
            pytest.skip(str(error).splitlines()[0])


@named(CASES)
def test_the_fixed_form_runs_alike_under_every_schedule(case: Litmus) -> None:
    found = [outputs(case, schedule, seed) for schedule, seed in SCHEDULES]
    assert all(buffers == found[0] for buffers in found[1:])
    for name, other in case.facts.get("result", {}).items():
        assert found[0][name] == found[0][other]


@named(CASES)
def test_the_fixed_form_leaves_no_poison(case: Litmus) -> None:
    buffers = outputs(case, "lazy", 0)
    for buffer in case.launch.buffers:
        if buffer.role == "out":
            words = np.frombuffer(buffers[buffer.name], np.uint32)
            assert (words != 0xFFFFFFFF).all()

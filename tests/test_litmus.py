"""Hazards re-enacted in pairs of small kernels, and kernels that only look hazardous."""

import difflib
import re
from collections.abc import Sequence

import numpy as np
import pytest
from litmus_cases import FOLDER, Litmus, cases, checked

from ptxgen.assembler import assemble
from ptxgen.emulator.findings import CODES
from ptxgen.errors import ToolMissingError

CASES = cases()
PAIRS = [c for c in CASES if not c.is_trap]
TRAPS = [c for c in CASES if c.is_trap]
UNHEARD_OF = {"FAULT", "FORM"}
"""Codes that no litmus kernel re-enacts: what the emulator has no better word for, and texts that
do not assemble."""
CONSEQUENCES = {"NONDETERMINISTIC"}
"""What any hazard may bring about."""


def named(some: Sequence[Litmus]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", some, ids=[c.name for c in some])


def code_lines(text: str) -> list[str]:
    """The text without comments, declarations of registers and blank lines."""
    lines = (re.sub(r"//.*", "", line).strip() for line in text.splitlines())
    joined = re.sub(r"\.reg [^;]*;", "", "\n".join(lines))
    return [line for line in joined.splitlines() if line]


def test_the_suite_is_as_large_as_promised() -> None:
    assert len(PAIRS) >= 30
    assert len(TRAPS) >= 15


def test_every_code_of_the_checker_has_a_pair() -> None:
    assert {c.facts["code"] for c in PAIRS} == set(CODES) - UNHEARD_OF


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
def test_a_right_kernel_leaves_the_same_bytes_under_every_schedule(case: Litmus) -> None:
    report = checked(case, "ok", strict=False)
    assert all(not run.error for run in report.runs)
    assert report.identical
    for name, other in case.facts.get("result", {}).items():
        assert report.outputs[name] == report.outputs[other]
    for name, role in case.buffers.items():
        if role == "out":
            words = np.frombuffer(report.outputs[name], np.uint32)
            assert (words != 0xFFFFFFFF).all()


@named(PAIRS)
def test_a_bug_is_found_by_its_code_and_the_fix_is_clean_under_strict(case: Litmus) -> None:
    assert checked(case, "ok", strict=True).findings == ()
    codes = set(checked(case, "bug", strict=True).codes)
    assert case.facts["code"] in codes
    assert codes <= {case.facts["code"], *case.facts.get("also", ()), *CONSEQUENCES}


@named(PAIRS)
def test_a_bug_is_found_by_its_code_in_foreign_kernels_too(case: Litmus) -> None:
    assert checked(case, "ok", strict=False).findings == ()
    found = {f.code: f.severity for f in checked(case, "bug", strict=False).findings}
    code = case.facts["code"]
    if case.facts.get("strict_only"):
        assert code not in found
    else:
        assert found.get(code, "") == case.facts.get("tolerant", CODES[code].tolerant)


@named(TRAPS)
def test_a_trap_is_no_error(case: Litmus) -> None:
    assert checked(case, "ok", strict=False).ok
    if case.facts["strict_clean"]:
        assert checked(case, "ok", strict=True).findings == ()

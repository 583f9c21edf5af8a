"""What errors say, read from the source: what is wrong, what must hold, what was got, what to try.

Kernels are left out: many of their refusals are of the grid of configs, which nobody typed.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"ArgumentError", "ConfigError", "LaunchError", "OutputPathError", "ProblemError",
         "ToolMissingError"}  # fmt: skip
PASSED_ON = {"error", "refusal", "reason", "message", "hint", "why", "_EMULATE"}
"""Variables that hold another error's message, or the hint."""


def refusals() -> Iterator[tuple[str, ast.expr]]:
    """Where our errors that a user causes are raised -> the message."""
    kernels = ROOT / "ptxgen" / "kernels"
    found = {path.resolve() for path in ROOT.glob("ptxgen/**/*.py")}
    for path in sorted(found | set(ROOT.glob("launcher/*.py"))):
        if path.is_relative_to(kernels):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            if ast.unparse(node.exc.func).split(".")[-1] in KINDS:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.exc.args[0]


def test_a_refusal_says_what_to_try() -> None:
    silent = []
    for where, message in refusals():
        names = {n.id for n in ast.walk(message) if isinstance(n, ast.Name)}
        text = ast.unparse(message)
        if not re.search(r"\btry\b|not_one_of", text) and not names & PASSED_ON:
            silent.append(where)
    assert silent == []

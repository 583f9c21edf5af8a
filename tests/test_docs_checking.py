"""What docs/checking.md and docs/launch-json.md show is what happens."""

import json
import re
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from ptxgen.cli import group
from ptxgen.emulator.checking import check
from ptxgen.emulator.findings import CODES
from ptxgen.launch import Launch
from ptxgen.mutation_rules import RULES

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLE = DOCS / "examples" / "double_tile.ptx"
LAUNCH = DOCS / "examples" / "double_tile.json"
CHECKING = (DOCS / "checking.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(
    r"^```(\w*)\n(.*?)^```$", CHECKING, re.MULTILINE | re.DOTALL
)
"""Language and text of each block of code."""


def shown(command: str) -> list[str]:
    """The lines that a document shows behind `$ command`."""
    block = next(code for language, code in BLOCKS if not language and command in code)
    return block.split("\n", 1)[1].splitlines()


def shown_command(command: str) -> str:
    """The line that a document shows with a command."""
    return next(line for line in CHECKING.splitlines() if command in line)


def output(*arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(group, list(arguments), prog_name="ptxgen")
    return result.stdout, result.stderr


def test_the_example_is_reported_as_shown() -> None:
    stdout, _ = output("check", str(EXAMPLE), "--launch", str(LAUNCH))
    assert stdout.startswith("\n".join(shown("--launch docs/examples/double_tile.json\nerror")))


def test_the_example_is_clean_once_it_has_its_fence() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    barrier = "    bar.sync 0;\n    @!%p0 bra $END;"
    fixed = text.replace(barrier, f"    fence.proxy.async.shared::cta;\n{barrier}")
    assert fixed != text
    values = np.arange(64 * 40, dtype=np.uint16) % 64 + 0x3F80
    launch = Launch.from_json(LAUNCH.read_text(encoding="utf-8"))
    report = check(fixed, launch, {"x": values})
    assert report.findings == ()
    # doubling a normal bf16 adds one to its exponent
    assert report.outputs["y"] == (values + 0x80).astype(np.uint16).tobytes()


def test_the_debugger_shows_what_is_shown() -> None:
    command = shown_command("ptxgen step docs/examples/double_tile.ptx")
    wanted = shown("ptxgen step docs/examples/double_tile.ptx")
    typed = [line.removeprefix("(ptx) ") for line in wanted if line.startswith("(ptx) ")]
    arguments = [a.replace("docs/", f"{DOCS}/") for a in command.split()[2:]]
    result = CliRunner().invoke(group, arguments, prog_name="ptxgen", input="\n".join(typed))
    assert result.stdout.splitlines() == wanted


def test_the_launch_template_says_what_is_shown() -> None:
    _, stderr = output("check", str(EXAMPLE), "--launch-template")
    assert stderr.splitlines() == shown("--launch-template > launch.json")


def test_the_chain_of_two_gemms_is_checked_as_shown() -> None:
    (code,) = [code for language, code in BLOCKS if language == "python" and "renamed" in code]
    exec(compile(code, "docs/checking.md", "exec"), {})


def test_every_code_and_rule_is_documented() -> None:
    for code, info in CODES.items():
        row = f"| {code} | {info.meaning} | {info.strict or '-'} | {info.tolerant or '-'} |"
        assert row in CHECKING
    for rule in RULES:
        assert f"| {rule.name} | {rule.reason} |" in CHECKING


def test_the_launch_that_is_explained_is_the_one_of_the_example() -> None:
    text = (DOCS / "launch-json.md").read_text(encoding="utf-8")
    block = re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0]
    assert json.loads(block) == json.loads(LAUNCH.read_text(encoding="utf-8"))


def test_every_field_of_a_launch_is_explained() -> None:
    text = (DOCS / "launch-json.md").read_text(encoding="utf-8")
    launch = json.loads(Launch.from_json(LAUNCH.read_text(encoding="utf-8")).to_json())
    fields = set(launch) | set(launch["buffers"][0]) | set(launch["params"][0]["value"])
    for name in fields - {"schema"}:
        assert f"| {name} |" in text

"""ptxgen step: where it stops."""

from pathlib import Path

from click.testing import CliRunner

from ptxgen.cli import group

EXAMPLES = Path(__file__).parent.parent / "docs/examples"
TARGET = ["step", str(EXAMPLES / "double_tile.ptx"), "--launch", str(EXAMPLES / "double_tile.json")]


def test_a_breakpoint_on_a_label_stops_at_the_instruction_behind_it() -> None:
    result = CliRunner().invoke(group, [*TARGET, "--break", "34"], input="quit\n")
    said, stopped, *_ = result.output.splitlines()
    assert said == "line 34 has no instruction; the next one is at 35"
    assert "35: mbarrier.try_wait.parity" in stopped


def test_a_breakpoint_behind_the_last_instruction_is_refused() -> None:
    lines = (EXAMPLES / "double_tile.ptx").read_text(encoding="utf-8").splitlines()
    result = CliRunner().invoke(group, [*TARGET, "--break", str(len(lines))], input="quit\n")
    assert result.exit_code == 2
    assert f"there are instructions up to line {len(lines) - 1} of the text" in result.output


def test_a_breakpoint_set_at_the_prompt_on_a_blank_line_moves_too() -> None:
    result = CliRunner().invoke(group, TARGET, input="break 1\nquit\n")
    assert "line 1 has no instruction; the next one is at" in result.output

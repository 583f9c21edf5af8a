"""compute-sanitizer on a few cases of a selftest, if it is here."""

import shutil
import subprocess
import sys
from typing import Any

TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")
FOUND = 9
"""Exit status that compute-sanitizer is asked for if it finds anything."""
TAIL_LINES = 25


def sanitize(target: str, gpu_index: int, seconds: float) -> list[dict[str, Any]]:
    """What each tool says of the small selftest, as plain data; one entry without them.

    seconds: of one tool, at most.
    """
    program = shutil.which("compute-sanitizer")
    if program is None:
        return [{"tool": "compute-sanitizer", "ran": False, "reason": "it is not on PATH"}]
    found = []
    for tool in TOOLS:
        command = [
            program, "--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all",
            sys.executable, "-m", "ptxgen.selftest.sweep", target, "small", str(gpu_index), "0",
        ]  # fmt: skip
        entry: dict[str, Any] = {"tool": tool, "ran": True}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=seconds,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            found.append({**entry, "ok": False, "reason": f"no end within {seconds:g} s"})
            continue
        lines = [x for x in done.stdout.splitlines() if x.startswith("=")]
        lines += done.stderr.splitlines()
        found.append(
            {**entry, "ok": done.returncode == 0, "status": done.returncode,
             "cases": sum(x.startswith("{") for x in done.stdout.splitlines()),
             "tail": lines[-TAIL_LINES:]}
        )  # fmt: skip
    return found

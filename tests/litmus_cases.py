"""The litmus suite: minimal kernels with one hazard each, their fixes, and traps that are right.

tests/litmus/NAME.json holds the launch, the code that a checker must report (`code`; those in
`also` may come with it), how the default check must rate it (`tolerant`), and what the fixed form
computes (`result`: buffers that must end up equal). NAME.bug.ptx and NAME.ok.ptx are the pair;
trap_NAME.ptx is a kernel that a hasty checker would flag.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.emulator import Options, run
from ptxgen.launch import Launch

FOLDER = Path(__file__).parent / "litmus"
SCHEDULES = (
    ("eager", 0), ("lazy", 0), ("run_to_block", 0), ("random", 0), ("random", 1), ("random", 2),
)  # fmt: skip


@dataclass(frozen=True)
class Litmus:
    """One pair, or one trap."""

    name: str
    facts: Mapping[str, Any]
    """The JSON file."""
    launch: Launch

    @property
    def is_trap(self) -> bool:
        """Whether it is right, and only looks wrong."""
        return "code" not in self.facts

    def text(self, form: str) -> str:
        """PTX of the `bug` or `ok` form; a trap has the ok form only."""
        ending = "ptx" if self.is_trap else f"{form}.ptx"
        return (FOLDER / f"{self.name}.{ending}").read_text(encoding="utf-8")


def cases() -> list[Litmus]:
    """All pairs and traps, by name."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        facts = json.loads(path.read_text(encoding="utf-8"))
        found.append(Litmus(path.stem, facts, Launch.from_json(json.dumps(facts["launch"]))))
    return found


def outputs(case: Litmus, schedule: str, seed: int) -> dict[str, bytes]:
    """Every buffer after the ok form ran."""
    options = Options(schedule=schedule, seed=seed)
    return dict(run(case.text("ok"), case.launch, options=options).buffers)

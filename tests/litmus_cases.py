"""The litmus suite: minimal kernels with one hazard each, their fixes, and traps that are right.

tests/litmus/NAME.json holds the launch (and in `before` one that runs first), the code that the
checker must report (`code`; those in `also` may come with it), whether only strict checking does
(`strict_only`), what the fixed form computes (`result`: buffers that must end up equal), and after
how many instructions a run is given up (`max_instructions`).
NAME.bug.ptx and NAME.ok.ptx are the pair. trap_NAME.ptx is a kernel that a hasty checker would
flag; it has no error by default, and with `strict_clean` no finding under strict.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ptxgen.emulator.checking import Report, check
from ptxgen.launch import Launch

FOLDER = Path(__file__).parent / "litmus"


@dataclass(frozen=True, eq=False)
class Litmus:
    """One pair, or one trap."""

    name: str
    facts: Mapping[str, Any]
    """The JSON file."""

    @property
    def is_trap(self) -> bool:
        """Whether it is right, and only looks wrong."""
        return "code" not in self.facts

    @property
    def launches(self) -> tuple[Launch, ...]:
        """In stream order."""
        texts = [self.facts[k] for k in ("before", "launch") if k in self.facts]
        return tuple(Launch.from_json(json.dumps(t)) for t in texts)

    @property
    def buffers(self) -> dict[str, str]:
        """Name -> role in the last launch that names it."""
        return {b.name: b.role for launch in self.launches for b in launch.buffers}

    def text(self, form: str) -> str:
        """PTX of the `bug` or `ok` form; a trap has the ok form only."""
        ending = "ptx" if self.is_trap else f"{form}.ptx"
        return (FOLDER / f"{self.name}.{ending}").read_text(encoding="utf-8")


@cache
def cases() -> tuple[Litmus, ...]:
    """All pairs and traps, by name."""
    paths = sorted(FOLDER.glob("*.json"))
    return tuple(Litmus(p.stem, json.loads(p.read_text(encoding="utf-8"))) for p in paths)


@cache
def checked(case: Litmus, form: str, strict: bool) -> Report:
    """What the checker says of a form, under all schedules."""
    return check(
        case.text(form), case.launches, strict=strict, outputs=tuple(case.buffers),
        max_instructions=case.facts.get("max_instructions", 1_000_000),
    )  # fmt: skip

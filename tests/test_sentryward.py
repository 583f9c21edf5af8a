"""SentryWard, a static verifier of PTX, finds launches of ours synchronised and race free."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("sentryward")

SCRIPT = Path(__file__).parent.parent / "scripts" / "ask_sentryward.py"
SECONDS = 120
PROVED = {0: "one CTA", 5: "cluster", 7: "cluster launch control", 9: "swapped operands"}
"""Number of the script's case -> what it shows."""


@pytest.mark.parametrize("number", PROVED, ids=PROVED.get)
def test_launches_are_race_free_in_every_schedule(number: int) -> None:
    script = runpy.run_path(str(SCRIPT))
    answer = script["ask"](list(script["plans"]())[number], SECONDS)
    assert answer["result"] == "race_free", answer["diagnostics"]

"""Operands that are the same in all lanes: the bits of every form are those of varying ones."""

from dataclasses import replace

import numpy as np
import pytest
from hardware_runs import exact_emulator, run_case
from hardware_scalar import LOADS, NUM_THREADS, scalar_case
from hardware_scalar_forms import FAMILIES


@pytest.mark.parametrize("uniform", range(1, 8), ids=lambda u: f"operands {u:03b}")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_uniform_operand_changes_no_bit(family: str, uniform: int) -> None:
    case = scalar_case(family, *FAMILIES[family])
    chosen = [i for i in range(3) if uniform >> i & 1]
    values = case.data["in"].copy()
    which = np.random.default_rng(uniform).integers(0, NUM_THREADS // 2, 3)
    for i in chosen:
        values[i] = values[i, which[i]]
    lines = [line.replace("%in+", "%all+") if i in chosen else line
             for i, line in enumerate(LOADS.splitlines())]  # fmt: skip
    text = case.ptx.replace(LOADS, "\n".join(lines))
    text = text.replace("mad.wide.u32 %in", ".reg .b64 %all;\nmov.b64 %all, %in;\nmad.wide.u32 %in")
    given = {"in": values}
    varying = run_case(exact_emulator(), replace(case, data=given))
    found = run_case(exact_emulator(), replace(case, ptx=text, data=given))
    for part in case.parts:
        span = slice(part.first, part.first + part.nbytes)
        assert found[span] == varying[span], part.name

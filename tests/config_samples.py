"""Samples of configs that show many pairs of field values, and what must hold for each of them."""

import itertools
import random
from collections.abc import Sequence
from typing import Any, TypeVar

from ptxgen.assembler import Cubin, assemble
from ptxgen.plans import Plan
from ptxgen.ptx.forms import min_version
from ptxgen.ptx.parser import parse
from ptxgen.renderer import render

C = TypeVar("C")
DRAWN = 200
"""Configs of which the best is taken at each step."""


def covering_sample(configs: Sequence[C], count: int, first: Sequence[C] = ()) -> list[C]:
    """`count` configs, `first` among them, that show as many pairs of field values as a greedy walk
    finds."""
    rng = random.Random(0)
    sample = list(first)
    seen = {pair for config in sample for pair in pairs(config)}
    while len(sample) < count:
        drawn = rng.sample(configs, min(DRAWN, len(configs)))
        best = max(drawn, key=lambda config: len(pairs(config) - seen))
        sample.append(best)
        seen |= pairs(best)
    return sample


def pairs(config: Any) -> set[tuple[Any, ...]]:
    """Pairs of (field, value)."""
    return set(itertools.combinations(vars(config).items(), 2))


def assemble_cleanly(plan: Plan) -> Cubin:
    """The cubin of a plan; fails with a spill or a message of the assembler."""
    cubin = assemble(render(plan).text, plan.target)
    assert cubin.spill_bytes == 0, plan.entry
    assert cubin.messages == (), plan.entry
    assert cubin.registers <= 255, plan.entry
    return cubin


def has_lowest_version(plan: Plan) -> bool:
    """Whether the text of a plan states the lowest `.version` that its instructions need."""
    return min_version(parse(render(plan).text), plan.target).version == plan.version

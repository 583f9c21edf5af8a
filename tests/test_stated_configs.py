"""The stated configs for Blackwell assemble without spill under every ptxas that is here."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from config_samples import covering_sample, has_lowest_version

from ptxgen.assembler import plan_assembly
from ptxgen.emulator.flow import num_results, reads, writes
from ptxgen.ptx.module import Instruction
from ptxgen.ptx.parser import parse
from ptxgen.renderer import render
from ptxgen.stated_configs import Stated, stated_configs
from ptxgen.toolchain import Ptxas, find_ptxas

DOCS = Path(__file__).parent.parent / "docs" / "blackwell.md"
CI_SAMPLE = 5
"""Configs of each kernel that CI assembles; `--all` assembles all."""

REGISTER_STEP = 9
"""Every so manieth config is looked at for registers that nothing reads."""


@cache
def assemblers() -> list[Ptxas]:
    """One ptxas of each version that knows the newest target."""
    found = {p.version: p for p in find_ptxas() if "sm_103a" in p.archs}
    assert found, "no ptxas knows sm_103a; try pip install nvidia-cuda-nvcc"
    return list(found.values())


def assembles_cleanly(stated: Stated) -> bool:
    """No spill and no message, under every assembler; at the lowest `.version`."""
    plan = stated.plan
    text = render(plan).text
    for ptxas in assemblers():
        assembly = replace(plan_assembly(text, plan.target), ptxas=ptxas, identity=ptxas.identity)
        cubin = assembly.run(text)
        if cubin.spill_bytes or cubin.messages:
            return False
    return has_lowest_version(plan)


def test_the_list_is_as_long_as_the_documentation_says() -> None:
    stated = stated_configs()
    assert len(stated) >= 400
    assert len({str(s.config) for s in stated}) == len(stated)
    kernels = Counter(s.plan.kernel for s in stated)
    text = DOCS.read_text(encoding="utf-8")
    assert f"{len(stated)} configs" in text
    assert all(f"`{name}` {count}" in text for name, count in kernels.items())


@pytest.mark.parametrize(
    "kernel", ["gemm_sm100", "gemm_sm100_blockscaled", "grouped_sm100", "gemm_mma"]
)
def test_a_sample_assembles_cleanly_at_the_lowest_version(kernel: str) -> None:
    of_kernel = {s.config: s for s in stated_configs() if s.plan.kernel == kernel}
    sample = covering_sample(list(of_kernel), CI_SAMPLE)
    assert [str(c) for c in sample if not assembles_cleanly(of_kernel[c])] == []


EFFECTFUL = ("atom", "mbarrier", "elect", "wgmma", "tcgen05", "bar", "barrier", "call")
"""Instructions that do more than write the registers they name."""


def needed_registers(body: Sequence[Instruction]) -> set[str]:
    """Registers that reach an effect: what instructions with effects read, and what that is
    computed from."""
    needed: set[str] = set()
    grown = True
    while grown:
        before = len(needed)
        for instruction in reversed(body):
            results = writes(instruction)
            if has_effects(instruction) or needed & set(results):
                needed |= {*reads(instruction), *results}
        grown = len(needed) > before
    return needed


def has_effects(instruction: Instruction) -> bool:
    return instruction.name in EFFECTFUL or not num_results(instruction)


def test_every_register_reaches_an_effect() -> None:
    """No text computes or declares what nothing reads, or nothing but its own update."""
    for stated in stated_configs()[::REGISTER_STEP]:
        function = parse(render(stated.plan).text).entry(None)
        needed = needed_registers(function.body)
        assert set(function.registers) - needed == set(), stated.config


@pytest.mark.slow
def test_all_assemble_cleanly_at_the_lowest_version() -> None:
    assert [str(s.config) for s in stated_configs() if not assembles_cleanly(s)] == []

"""The stated configs for Blackwell assemble without spill under every ptxas that is here."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from config_samples import covering_sample, has_lowest_version

from ptxgen.assembler import plan_assembly
from ptxgen.emulator.flow import reads, writes
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


def test_every_register_is_read() -> None:
    """No text computes or declares what nothing reads."""
    for stated in stated_configs()[::REGISTER_STEP]:
        function = parse(render(stated.plan).text).entry(None)
        read = {name for instruction in function.body for name in reads(instruction)}
        for together in map(writes, function.body):  # a vector of which something is read
            read |= set(together) if read & set(together) else set()
        assert set(function.registers) - read == set(), stated.config


@pytest.mark.slow
def test_all_assemble_cleanly_at_the_lowest_version() -> None:
    assert len(assemblers()) >= 1
    assert [str(s.config) for s in stated_configs() if not assembles_cleanly(s)] == []

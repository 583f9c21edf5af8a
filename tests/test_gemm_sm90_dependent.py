"""Dependent launches of gemm_sm90: chains of two, where the second multiplies the first's D."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.arch import arch
from ptxgen.emulator.checking import check
from ptxgen.epilogue import Epilogue
from ptxgen.kernels import gemm_sm90
from ptxgen.launch import Device, Launch
from ptxgen.launcher import GpuDevice, PreparedCall
from ptxgen.operands import Operands, make_operands
from ptxgen.plans import Plan
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.trial import buffer_contents

BIASED = Epilogue(bias="column")
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"stages": 3}),
    ({}, {"stages": 8}),
    ({"epilogue": BIASED}, {"cluster_m": 2, "stages": 2}),
    ({"scale": "rowcol"}, {"split_k": 2, "stages": 4}),
    ({"scale": "tensor"}, {"store": "global"}),
]


def link_of(problem: Gemm, chosen: dict[str, Any]) -> Plan:
    config = gemm_sm90.default_config(problem, tile_n=64, tile_m=128, **chosen)
    return gemm_sm90.plan(problem, replace(config, dependent_launch=True), num_sms=4)


def chain(problem: Gemm, plan: Plan) -> tuple[tuple[Launch, Launch], Operands, dict[str, bytes]]:
    """Two launches, y = x B and z = y B, their operands, and what the buffers hold before."""
    operands = make_operands(problem, "integers")
    first = plan.launch.renamed({"a": "x", "d": "y"})
    second = plan.launch.renamed({"a": "y", "d": "z"})
    contents = dict(buffer_contents(problem, operands))
    contents["x"] = contents.pop("a")
    return (first, second), operands, contents


def wanted(problem: Gemm, operands: Operands) -> Any:
    y = problem.reference(operands.a, operands.b, operands.scale_a, operands.scale_b,
                          bias=operands.bias)  # fmt: skip
    y = y.astype(operands.a.dtype)
    z = problem.reference(y, operands.b, operands.scale_a, operands.scale_b, bias=operands.bias)
    return z.astype(operands.a.dtype).astype(np.float32)


@pytest.mark.parametrize(("fields", "chosen"), CASES, ids=str)
def test_a_dependent_pair_is_exact(
    device: Device, fields: dict[str, Any], chosen: dict[str, Any]
) -> None:
    problem = Gemm(200, 256, 256, **fields)
    plan = link_of(problem, chosen)
    launches, operands, contents = chain(problem, plan)
    text = render(plan).text
    nbytes = {b.name: b.nbytes for n in launches for b in n.buffers}
    addresses = {name: device.alloc(size) for name, size in nbytes.items()}
    for repeat in range(1 if device.name == "emulator" else 50):
        for name, size in nbytes.items():
            device.write(addresses[name], contents.get(name, b"\xff" * size))
        for launch in launches:
            of = {b.name: addresses[b.name] for b in launch.buffers}
            if isinstance(device, GpuDevice):
                PreparedCall(device, launch, text)(of)
            else:
                device.launch(launch, text, of)
        z = np.frombuffer(device.read(addresses["z"], nbytes["z"]), operands.a.dtype)
        assert np.array_equal(z.reshape(200, 256).astype(np.float32), wanted(problem, operands)), (
            repeat
        )
    for address in addresses.values():
        device.free(address)


@pytest.mark.parametrize(("fields", "chosen"), CASES, ids=str)
def test_strict_checks_of_a_pair_find_nothing(
    fields: dict[str, Any], chosen: dict[str, Any]
) -> None:
    problem = Gemm(136, 128, 128, **fields)
    plan = link_of(problem, chosen)
    launches, _, contents = chain(problem, plan)
    report = check(render(plan).text, launches, contents, strict=True, seeds=(0,))
    assert report.findings == ()
    assert report.identical


def test_block_scales_of_a_are_waited_for() -> None:
    problem = Gemm(136, 128, 256, "e4m3", "e4m3", scale="block", accumulate="promoted")
    plan = link_of(problem, {})
    contents = buffer_contents(problem, make_operands(problem, "integers"))
    report = check(render(plan).text, plan.launch, contents, strict=True, seeds=(0,))
    assert report.findings == ()


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_wait_of_producer_or_consumers_is_found(number: int) -> None:
    problem = Gemm(136, 128, 128)
    plan = link_of(problem, {})
    (first, second), _, contents = chain(problem, plan)
    back = second.renamed({"z": "x"})  # the second overwrites what the first may still read
    before, *waits = render(plan).text.split("griddepcontrol.wait;")
    assert len(waits) == 2
    joints = ["griddepcontrol.wait;" if i != number else "" for i in range(2)]
    text = before + "".join(map("".join, zip(joints, waits, strict=True)))
    report = check(text, (first, back), contents, strict=True, seeds=(0,))
    assert "DEPENDENT-LAUNCH" in report.codes


def test_weights_are_loaded_before_the_wait() -> None:
    text = render(link_of(Gemm(136, 128, 128), {})).text
    producer = text[text.index("// ---- producer") : text.index("// ---- consumer")]
    waits = producer.index("griddepcontrol.wait")
    assert producer.index("[%b_map, {") < waits < producer.index("[%a_map, {")


def test_no_second_cta_of_a_dependent_launch_fits_an_sm() -> None:
    plan = link_of(Gemm(136, 128, 128), {"stages": 2})
    sm_bytes = arch("sm_90a").smem_bytes + 1024  # the system takes a KiB for each CTA
    assert 2 * (plan.launch.dynamic_smem_bytes + 1024) > sm_bytes

"""What gemm_sm90 makes of its sums: C, bias, activations, amax, 8-bit D with scales."""

import itertools
from typing import Any

import numpy as np
import pytest
from gemm_runs import is_exact, run_gemm

from ptxgen.emulator.checking import check
from ptxgen.epilogue import ACTIVATIONS, Epilogue
from ptxgen.epilogue_reference import activate, activation_error
from ptxgen.errors import ConfigError, ProblemError
from ptxgen.kernels import gemm_sm90
from ptxgen.launch import Device
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.trial import buffer_contents
from ptxgen.verification import verify

FP8 = {"a": "e4m3", "b": "e4m3"}
BLOCK = {**FP8, "scale": "block", "accumulate": "promoted"}
EXACT: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({}, {"c": "bf16", "beta": 0.5}, {}),
    ({"d": "f32", "alpha": 2.0}, {"c": "f32", "beta": -1.0, "amax": True}, {"store": "global"}),
    ({"d": "f16"}, {"c": "f16", "c_stride": 278, "bias": "column", "bias_dtype": "f16"}, {}),
    (FP8, {"bias": "column"}, {"store": "deferred"}),
    (FP8, {"bias": "row", "bias_dtype": "bf16", "amax": True}, {"tile_n": 48, "cluster_m": 2}),
    ({**FP8, "scale": "rowcol"}, {"c": "bf16", "bias": "column", "amax": True}, {"split_k": 2}),
    (BLOCK, {"c": "f32", "bias": "column"}, {"tile_n": 64}),
    ({**FP8, "d": "e4m3"}, {"d_scale": "tensor", "amax": True}, {"tile_n": 48}),
    ({**FP8, "d": "e4m3"}, {}, {"tile_n": 24, "store": "global"}),
    ({**FP8, "d": "e4m3"}, {"d_scale": "group"}, {"tile_n": 128}),
    ({**FP8, "d": "e4m3", "d_stride": 288}, {"d_scale": "group", "d_scale_strides": (1, 141)},
     {"tile_n": 256, "tile_m": 64}),
    ({**BLOCK, "d": "e4m3"}, {"d_scale": "group", "bias": "row", "c": "bf16", "amax": True},
     {"tile_n": 128, "store": "global"}),
]  # fmt: skip


@pytest.mark.parametrize("case", EXACT, ids=str)
def test_epilogues_of_exact_operations_are_exact(
    device: Device, case: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
) -> None:
    fields, epilogue, chosen = case
    for m, n, k in ((138, 144, 272), (70, 272, 128)):
        problem = Gemm(m, n, k, **fields, epilogue=Epilogue(**epilogue))
        config = gemm_sm90.default_config(problem, **{"tile_n": 64, **chosen})
        assert is_exact(device, problem, config)


def test_c_may_be_d(device: Device) -> None:
    problem = Gemm(130, 136, 128, d="f32", epilogue=Epilogue(c="f32"))
    operands = make_operands(problem, "integers")
    plan = gemm_sm90.plan(problem, None, 4)
    contents = buffer_contents(problem, operands)
    addresses = {name: device.alloc(len(data)) for name, data in contents.items()}
    for name, data in contents.items():
        device.write(addresses[name], data)
    addresses["d"] = addresses["c"]
    device.launch(plan.launch, render(plan).text, addresses)
    found = np.frombuffer(device.read(addresses["d"], len(contents["c"])), np.float32)
    want = problem.reference(operands.a, operands.b, c=operands.c)
    assert np.array_equal(found.reshape(130, 136), want)
    for address in {addresses[name] for name in contents}:
        device.free(address)


RANDOM: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    *(({}, {"activation": name, "bias": "column"}, {}) for name in ACTIVATIONS),
    (FP8, {"activation": "gelu", "c": "bf16", "amax": True}, {"split_k": 2}),
    ({**FP8, "d": "e4m3"}, {"activation": "silu", "d_scale": "tensor"}, {"store": "global"}),
    ({**FP8, "d": "e4m3"}, {"activation": "swiglu", "d_scale": "group"}, {"tile_n": 256}),
    ({**BLOCK, "d": "f32"}, {"activation": "swiglu", "amax": True}, {"tile_n": 80}),
    ({**BLOCK, "d": "e4m3"}, {"activation": "gelu_tanh", "d_scale": "group"}, {"tile_n": 128}),
]  # fmt: skip


@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_random_data_lies_within_the_bounds(
    device: Device, case: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
) -> None:
    fields, epilogue, chosen = case
    problem = Gemm(150, 288, 528, **{"alpha": 2.0**-4, **fields}, epilogue=Epilogue(**epilogue))
    operands = make_operands(problem, "random", seed=3)
    config = gemm_sm90.default_config(problem, **chosen)
    run = run_gemm(device, problem, config, operands)
    verdict = verify(
        problem, operands, run.d, exact=device.name != "emulator", d_scale=run.d_scale,
        amax=run.amax, k_parts=config.k_parts(problem.k),
    )  # fmt: skip
    assert verdict.ok, str(verdict)
    assert not run.stray_bytes


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_activations_err_by_no_more_than_is_said(device: Device, name: str) -> None:
    """Every float32 exponent and 32 fractions of each, both signs: A holds them, B is one."""
    bits = np.arange(0, 0x43000000, 1 << 18, dtype=np.uint32)
    x = np.concatenate([bits, bits | 0x80000000]).view(np.float32)
    n = len(x) // 64 * 64
    problem = Gemm(64, n // 64, 0, d="f32", epilogue=Epilogue(c="f32", activation=name))
    operands = make_operands(problem, "integers")
    assert operands.c is not None
    operands.c[...] = x[:n].reshape(64, n // 64)
    run = run_gemm(device, problem, None, operands)
    wide = operands.c.astype(np.float64)
    want = activate(name, wide)
    assert np.all(np.abs(run.d - want) <= activation_error(name, wide, want) + 2.0**-149)


STRICT = [EXACT[i] for i in (1, 2, 3, 5, 7, 9, 11)] + RANDOM[4:8]


@pytest.mark.parametrize("case", STRICT, ids=str)
def test_strict_checks_find_nothing(
    case: tuple[dict[str, Any], dict[str, Any], dict[str, Any]],
) -> None:
    fields, epilogue, chosen = case
    problem = Gemm(136, 272, 272, **fields, epilogue=Epilogue(**epilogue))
    config = gemm_sm90.default_config(problem, **{"tile_n": 64, **chosen})
    plan = gemm_sm90.plan(problem, config, num_sms=2)
    contents = dict(buffer_contents(problem, make_operands(problem, "integers")))
    if problem.epilogue.amax:
        contents["amax"] = bytes(4)
    report = check(render(plan).text, plan.launch, contents, strict=True, seeds=(0,))
    assert report.findings == ()
    assert report.identical


REFUSED = [
    (Gemm(64, 256, 64, d="e4m3", epilogue=Epilogue(d_scale="group")), {"tile_n": 64}, "tile_n=128"),
    (Gemm(64, 256, 64, epilogue=Epilogue(activation="swiglu")), {"split_k": 2}, "split_k=1"),
    (Gemm(64, 256, 64, epilogue=Epilogue(activation="swiglu")), {"tile_n": 24}, "tile_n=32"),
    (Gemm(64, 64, 64, d="e4m3"), {"tile_n": 24, "store": "tma"}, "tile_n=32"),
    (Gemm(64, 64, 64, epilogue=Epilogue(c="bf16", c_stride=65)), {}, "padded copy of C"),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "chosen", "hint"), REFUSED)
def test_what_an_epilogue_needs_is_said(problem: Gemm, chosen: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        gemm_sm90.plan(problem, gemm_sm90.default_config(problem, **chosen))


@pytest.mark.parametrize(
    ("n", "fields"),
    list(itertools.product([24], [{"activation": "swiglu"}, {"d_scale": "tensor"}, {"c": "e4m3"}])),
)
def test_epilogues_that_mean_nothing_are_refused(n: int, fields: dict[str, Any]) -> None:
    with pytest.raises(ProblemError):
        Gemm(64, n, 64, epilogue=Epilogue(**fields))


def test_kernels_without_epilogues_refuse_them() -> None:
    from ptxgen.kernels import kernel_for

    with pytest.raises(ConfigError, match="no epilogue but"):
        kernel_for(Gemm(64, 64, 64, epilogue=Epilogue(bias="row")), "sm_100a")

"""Configs of all kernels take values of their fields' types, and name any other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import (
    gemm_mma,
    gemm_sm90,
    gemm_sm100,
    gemm_sm100_blockscaled,
    grouped_sm90,
    grouped_sm100,
)
from ptxgen.problem import Gemm
from ptxgen.renderer import render

GROUPS = GroupedGemm("masked", 4, 64, 256, 512)
KERNELS: list[Any] = [
    (gemm_mma, Gemm(64, 256, 512)),
    (gemm_sm90, Gemm(64, 256, 512)),
    (gemm_sm100, Gemm(64, 256, 512)),
    (gemm_sm100_blockscaled, Gemm(64, 256, 512, "e4m3", "e4m3", scale="mx32")),
    (grouped_sm90, GROUPS),
    (grouped_sm100, GROUPS),
]
all_kernels = pytest.mark.parametrize(
    ("kernel", "problem"), KERNELS, ids=[k.NAME for k, _ in KERNELS]
)
WRONG: list[tuple[str, Any]] = [
    ("tile_m", 64.0),
    ("tile_m", True),
    ("tile_m", "64"),
    ("tile_n", None),
    ("stages", [2]),
    ("stages", np.array([1, 2])),
    ("a", 1),
    ("scale", np.array(["none"])),
]
WRONG_BOOLS: list[tuple[str, Any]] = [
    (name, value)
    for name in ("stream_k", "swap_ab")
    for value in ("off", 1, float("nan"), [1], None, np.array([1, 2]))
]


@all_kernels
def test_integers_of_numpy_make_the_same_kernel(kernel: Any, problem: Any) -> None:
    config = kernel.default_config(problem)
    sizes = {n: np.int64(v) for n, v in vars(config).items() if type(v) is int}
    made = replace(config, **sizes)
    assert {type(vars(made)[name]) for name in sizes} == {int}
    plan = kernel.plan(problem, made, np.int32(100))
    assert render(plan) == render(kernel.plan(problem, config, 100))


@all_kernels
@pytest.mark.parametrize(("name", "value"), WRONG, ids=repr)
def test_other_types_are_refused(kernel: Any, problem: Any, name: str, value: Any) -> None:
    config = kernel.default_config(problem)
    said = f"(?s)^{name} must be a.*, got .*; try "
    with pytest.raises(ConfigError, match=said):
        replace(config, **{name: value})
    with pytest.raises(ConfigError, match=said):
        kernel.default_config(problem, **{name: value})


@pytest.mark.parametrize(("name", "value"), WRONG_BOOLS, ids=repr)
def test_only_bools_turn_something_on(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name} must be True or False, got .*; try {name}="):
        replace(grouped_sm90.default_config(GROUPS), **{name: value})


@all_kernels
@pytest.mark.parametrize("num_sms", [0, -1, 1.5, "8", None, True], ids=repr)
def test_a_plan_is_for_a_number_of_sms(kernel: Any, problem: Any, num_sms: Any) -> None:
    with pytest.raises(ConfigError, match=r"num_sms must be an integer from 1, got .*; try"):
        kernel.plan(problem, None, num_sms)

"""Recheck follows the accumulators of any kernel of ours, and names the k-step that is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ptxgen.cli import group
from ptxgen.emulator import Options, run
from ptxgen.errors import WrongResultError
from ptxgen.kernels import gemm_sm90, grouped_sm90
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.recheck import Recheck
from ptxgen.subjects import gemm_subject


def check(*arguments: str) -> Result:
    return CliRunner().invoke(group, list(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        "--arch sm_100a --m 64 --n 64 --k 64",
        "--arch sm_100a --m 100 --n 72 --k 200 --swap-ab off",
        "--m 100 --n 72 --k 200 --swap-ab on",
        "--m 40 --n 72 --k 512 --split-k 2",
        "--m 0 --n 64 --k 64",
        "--arch sm_100a --m 64 --n 64 --k 0",
    ],
)  # fmt: skip
def test_recheck_finds_nothing_wrong_with_any_kernel_of_ours(arguments: str) -> None:
    result = check("check", "gemm", *arguments.split(), "--recheck")
    assert result.exit_code == 0, result.output


def test_recheck_refuses_a_kernel_whose_products_it_cannot_see() -> None:
    result = check("check", "gemm", "--arch", "sm_80", "--recheck")
    assert result.exit_code == 2
    assert "gemm_mma has neither; try" in result.stderr


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("step", "said"),
    [
        (0, "product of no tile"),
        (2, "k-step 2"),
        (4, "were never added, first that of k-step 4 to D"),
    ],
)
def test_recheck_names_the_k_step_that_differs(swapped: bool, step: int, said: str) -> None:
    """The kernel sums over K = 64 in 4 steps; what it is compared with differs from one on."""
    kernel = grouped_sm90 if swapped else gemm_sm90
    problem = Gemm(64, 72, 64)
    config = kernel.default_config(problem, **({"swap_ab": True} if swapped else {}))
    subject = gemm_subject(problem, config, kernel)
    operands = make_operands(problem, "integers")
    a = np.concatenate([operands.a, operands.a[:, :16]], axis=1)
    b = np.concatenate([operands.b, operands.b[:, :16]], axis=1)
    if step < 4:
        a[:, step * 16] += np.ones((), a.dtype)
        b[:, step * 16] += np.ones((), b.dtype)
    recheck = Recheck(
        Gemm(64, 72, 80 if step == 4 else 64),
        replace(operands, a=a if step == 4 else a[:, :64], b=b if step == 4 else b[:, :64]),
        swapped=swapped,
    )

    def rechecked() -> None:
        run(subject.ptx, subject.launch, subject.data, Options(), recheck)
        recheck.finish()

    with pytest.raises(WrongResultError, match=said):
        rechecked()

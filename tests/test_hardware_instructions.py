"""Instructions of threads and warps give the bytes that an H200 wrote."""

import pytest
from hardware_catalog import scalar_cases, warp_cases
from hardware_runs import check

from ptxgen.launch import Device


@pytest.mark.parametrize("name", scalar_cases())
def test_forms_of_one_thread_give_the_bits_of_an_h200(device: Device, name: str) -> None:
    check(device, scalar_cases()[name])


@pytest.mark.parametrize("name", warp_cases())
def test_forms_of_a_warp_give_the_bits_of_an_h200(device: Device, name: str) -> None:
    check(device, warp_cases()[name])

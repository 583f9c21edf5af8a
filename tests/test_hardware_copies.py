"""Asynchronous copies, mbarriers and clusters leave the bytes that an H200 left."""

import pytest
from hardware_catalog import copy_cases
from hardware_runs import check

from ptxgen.launch import Device

NAMES = [(family, name) for family, cases in copy_cases().items() for name in cases]


@pytest.mark.parametrize(("family", "name"), NAMES)
def test_copies_leave_the_bytes_that_an_h200_left(device: Device, family: str, name: str) -> None:
    check(device, copy_cases()[family][name])

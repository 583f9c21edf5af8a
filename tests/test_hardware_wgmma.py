"""wgmma gives the bits that an H200 gave: all types, sizes, layouts, scales, chains."""

import pytest
from hardware_catalog import wgmma_forms
from hardware_runs import check

from ptxgen.launch import Device


@pytest.mark.parametrize("name", wgmma_forms("types"))
def test_types_and_operands_give_the_bits_of_an_h200(device: Device, name: str) -> None:
    check(device, wgmma_forms("types")[name].case)


@pytest.mark.parametrize("name", wgmma_forms("sizes"))
def test_sizes_give_the_bits_of_an_h200(device: Device, name: str) -> None:
    check(device, wgmma_forms("sizes")[name].case)


@pytest.mark.parametrize("name", wgmma_forms("sparse"))
def test_sparse_forms_give_the_bits_of_an_h200(device: Device, name: str) -> None:
    check(device, wgmma_forms("sparse")[name].case)


@pytest.mark.parametrize("name", wgmma_forms("layouts"))
def test_layouts_give_the_bits_of_an_h200(device: Device, name: str) -> None:
    check(device, wgmma_forms("layouts")[name].case)

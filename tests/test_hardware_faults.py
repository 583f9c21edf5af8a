"""What an H200 stops with an error, the emulator stops, too."""

import pytest
from hardware_faults import error_on_a_gpu, faults
from hardware_runs import exact_emulator, run_case

from ptxgen.errors import EmulationError
from ptxgen.launch import Device


@pytest.mark.parametrize("name", faults())
def test_the_fault_of_an_h200_is_one(device: Device, name: str) -> None:
    case, code = faults()[name]
    if device.name == "emulator":
        with pytest.raises(EmulationError):
            run_case(exact_emulator(), case)
    else:
        assert error_on_a_gpu(name) == str(code)

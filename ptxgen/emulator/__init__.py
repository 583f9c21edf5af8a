"""Executes PTX on the CPU from its text and a launch description, and nothing else."""

from ptxgen.emulator.device import EmulatorDevice, Run, run
from ptxgen.emulator.observer import Observer
from ptxgen.emulator.options import SCHEDULES, Options
from ptxgen.emulator.stepping import Stepper, Stop

__all__ = [
    "SCHEDULES",
    "EmulatorDevice",
    "Observer",
    "Options",
    "Run",
    "Stepper",
    "Stop",
    "run",
]

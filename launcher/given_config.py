"""given_config: whether the `config=` of a call is of a kernel that serves such calls."""

from typing import Any

from ptxgen.errors import ArgumentError


def check_config(config: Any, call: str) -> None:
    """Check the config that `call` (gemm or grouped_gemm) was given, if it was.

    Raises: ArgumentError if it is another kernel's; ConfigError if it is none.
    """
    if config is None:
        return
    from ptxgen.kernels import GROUPED_KERNELS, KERNELS, grouped_sm90, kernel_of

    # grouped_sm90 takes a dense problem as a batch of one.
    serving = {"gemm": (*KERNELS, grouped_sm90.NAME), "grouped_gemm": tuple(GROUPED_KERNELS)}
    kernel, names = kernel_of(config), serving[call]
    if kernel.NAME not in names:
        raise ArgumentError(
            f"config: must be a Config of {', '.join(names)} for {call}, got one of "
            f"{kernel.NAME}; try config=None"
        )

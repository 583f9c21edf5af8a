"""The exception tree. Every error that ptxgen raises on purpose is a `PtxgenError`.

A message says what is wrong, what must hold, what was got, and what to try.
"""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from numbers import Integral


def is_one_of(got: object, allowed: Collection[object]) -> bool:
    """Whether `got`, which may be anything, is one of the values `allowed`."""
    if isinstance(allowed, range):  # which would compare all of its numbers with what is no int
        return isinstance(got, Integral) and int(got) in allowed
    try:
        hash(got)  # an array of one string equals that string, but has none
        return got in allowed
    except TypeError:
        return False


def not_one_of(what: str, got: object, allowed: Iterable[object]) -> str:
    """The message that `what` is none of the values `allowed`, with the one that is most like it,
    or the first, to try."""
    names = [str(name) for name in allowed]
    like = [*get_close_matches(str(got), names, n=1), *names, "without"]
    return f"{what} must be one of {', '.join(names) or 'none'}, got {got!r}; try {like[0]}"


class PtxgenError(Exception):
    """Anything that ptxgen reports. `exit_code` is what the command line exits with."""

    exit_code = 1


class ProblemError(PtxgenError):
    """The problem itself is not one that any kernel of ours computes."""

    exit_code = 2


class ConfigError(PtxgenError):
    """The configuration is illegal, or does not serve the problem."""

    exit_code = 2


class ArgumentError(PtxgenError):
    """An operand (array, pointer, scale, output) does not fit the problem."""

    exit_code = 2


class LaunchError(PtxgenError):
    """A launch description is inconsistent, or does not fit the PTX."""

    exit_code = 2


class OutputPathError(PtxgenError):
    """A result cannot be written where it was asked for."""

    exit_code = 2


class RenderError(PtxgenError):
    """A template and its plan disagree. This is a defect of ptxgen."""


class ToolMissingError(PtxgenError):
    """An assembler, driver or disassembler is not here; the message says what to install."""

    exit_code = 3


class DriverError(PtxgenError):
    """A CUDA driver call failed; the message names the call, the code and the JIT log."""

    exit_code = 3


class PtxError(PtxgenError):
    """PTX text was rejected: by our parser, an assembler, the JIT or the emulator."""

    exit_code = 4

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        """1-based line of the PTX text, where known."""


class PtxSyntaxError(PtxError):
    """The text is not PTX."""


class UnknownInstructionError(PtxError):
    """An instruction, form or directive that this part of ptxgen does not know."""


class AssemblyError(PtxError):
    """ptxas, nvJitLink or the driver's JIT rejected the text."""


class EmulationError(PtxgenError):
    """Execution on the emulator found a fault: what, where (PTX line, CTA, warp), and why."""

    exit_code = 5

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        """1-based line of the PTX text, where known."""


class OutOfBoundsError(EmulationError):
    """An access outside the buffers, shared memory or tensor memory."""


class MisalignedError(EmulationError):
    """An address that does not have the alignment that the access needs."""


class BarrierError(EmulationError):
    """An mbarrier or named barrier was used against its rules."""


class HazardError(EmulationError):
    """A checked run found a hazard."""


class DeadlockError(EmulationError):
    """All warps wait and nothing in flight can release them."""

    exit_code = 6


class OutOfTimeError(EmulationError):
    """A run on the emulator takes longer than it may."""


class WrongResultError(PtxgenError):
    """A result exceeds its error bound."""

    exit_code = 5

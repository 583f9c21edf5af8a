"""Faults say where: PTX line, CTA and warp."""

from types import TracebackType
from typing import TYPE_CHECKING

from ptxgen.errors import EmulationError

if TYPE_CHECKING:
    from ptxgen.emulator.warp import Warp


UNFORESEEN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What malformed operands may raise where a form is not checked in advance."""


def unforeseen(error: Exception, line: int | None = None) -> EmulationError:
    """The error of ours for one of UNFORESEEN."""
    return EmulationError(
        f"the emulator cannot execute this ({type(error).__name__}: {error}); its operands may not "
        "fit its form, which an assembler would say",
        line,
    )


def line_of(traceback: TracebackType | None) -> int | None:
    """PTX line of the generated code that a traceback passes through, if it does."""
    line: int | None = None
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code.co_filename == "<ptx>":
            lines = frame.f_globals["PTX_LINES"]
            index = traceback.tb_lineno - 1
            if 0 <= index < len(lines):
                line = lines[index] or line
        traceback = traceback.tb_next
    return line


def located(
    error: EmulationError, warp: "Warp | None", traceback: TracebackType | None
) -> EmulationError:
    """The same error, its message headed by line, CTA and warp."""
    if getattr(error, "located", False):
        return error
    line = error.line if error.line is not None else line_of(traceback)
    where = [f"PTX line {line}"] if line else []
    if warp is not None:
        where.append(warp.name)
    head = ", ".join(where)
    found = type(error)(f"{head}: {error}" if head else str(error), line)
    vars(found)["located"] = True
    return found

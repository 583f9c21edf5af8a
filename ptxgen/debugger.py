"""Debugger: runs PTX on the emulator an instruction at a time, by commands as in any debugger."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ptxgen.emulator.deadlock import barrier_name, describe
from ptxgen.emulator.stepping import Stepper, Stop
from ptxgen.errors import ArgumentError, EmulationError, PtxgenError
from ptxgen.ptx.parser import parse

HELP = """\
step [N]        go on for N instructions (1), whichever warp executes them
next [N]        go on for N instructions of this warp
continue        go on to a breakpoint, or to the end
break [LINE]    stop at a PTX line; without one, list the breakpoints
delete LINE     forget a breakpoint
focus [C W]     stop in warp W of CTA C only; without them, in all warps again
print [%R ...]  registers that will still be read; all lanes alike, or start + step per lane
list [N]        the text around this line
barriers        mbarriers: phase, arrivals and bytes outstanding
flight          asynchronous operations that are not done, and who issued them
warps           where every warp is, and what it waits for
shared A [N]    N bytes (64) of this CTA's shared memory from offset A, or from a symbol
tmem [L C]      tensor memory: allocations, or 8 columns from lane L, column C on
quit            end the run
"""
ALIASES = {
    "s": "step", "n": "next", "c": "continue", "b": "break", "d": "delete", "f": "focus",
    "p": "print", "l": "list", "w": "warps", "x": "shared", "q": "quit", "h": "help",
}  # fmt: skip
BYTES_SHOWN = 64


class QuitError(PtxgenError):
    """The person at the debugger ended the run."""

    exit_code = 0


class Debugger(Stepper):
    """Stops before instructions, and lets `read` say what to do."""

    def __init__(
        self,
        text: str,
        read: Callable[[], str | None],
        write: Callable[[str], None],
        breakpoints: Iterable[int] = (),
    ) -> None:
        """`read` gives one command, None where there are no more; `write` takes output.

        Raises: ArgumentError for one of `breakpoints` at or behind which there is no instruction.
        """
        self.lines = text.splitlines()
        self._code = sorted({i.line for f in parse(text).functions.values() for i in f.body})
        self.read = read
        self.write = write
        self.breakpoints: set[int] = set()
        self.num_stops = 0
        """Instructions seen so far."""
        self._left = 1
        """Stop after so many instructions; 0 = only at breakpoints."""
        self._warp: tuple[int, int] | None = None
        """Count instructions of this warp only."""
        self._focus: tuple[int, int] | None = None
        self._last = "step"
        self._silent = False
        for line in breakpoints:
            self._left = 0
            self._add_breakpoint(line)

    def on_stop(self, stop: Stop) -> None:
        """An instruction is about to execute: ask what to do, if it is time."""
        self.num_stops += 1
        if self._silent:
            return
        who = stop.origin.cta, stop.origin.warp
        if self._focus is not None and who != self._focus:
            return
        if stop.instruction.line not in self.breakpoints:
            if not self._left or (self._warp is not None and who != self._warp):
                return
            self._left -= 1
            if self._left:
                return
        self._left, self._warp = 0, None
        self.show(stop)
        self._ask(stop)

    def show(self, stop: Stop) -> None:
        """Say who is about to execute what."""
        origin, instruction = stop.origin, stop.instruction
        lanes = "" if origin.lanes == 0xFFFFFFFF else f" lanes {origin.lanes:#010x}"
        line = instruction.line
        self.write(f"CTA {origin.cta} warp {origin.warp}{lanes}  {line}: {self._line(line)}")

    def _ask(self, stop: Stop) -> None:
        while True:
            given = self.read()
            if given is None:
                self._silent = True
                return
            words = given.split("#")[0].split() or self._last.split()
            name = ALIASES.get(words[0], words[0])
            self._last = " ".join((name, *words[1:]))
            try:
                if self._execute(stop, name, words[1:]):
                    return
            except (ValueError, IndexError, ArgumentError, EmulationError) as error:
                self.write(f"{name}: {error}; help says what it takes")

    def _execute(self, stop: Stop, name: str, arguments: list[str]) -> bool:
        """Carry out one command; whether the run goes on."""
        if name in ("step", "next"):
            self._left = _positive(arguments[0]) if arguments else 1
            self._warp = (stop.origin.cta, stop.origin.warp) if name == "next" else None
            return True
        if name == "continue":
            return True
        if name == "quit":
            raise QuitError("quit")
        command = getattr(self, f"_do_{name}", None)
        if command is None:
            self.write(f"no command {name!r}; help lists them")
        else:
            command(stop, arguments)
        return False

    # Commands

    def _do_help(self, stop: Stop, arguments: list[str]) -> None:
        self.write(HELP.rstrip())

    def _do_break(self, stop: Stop, arguments: list[str]) -> None:
        if arguments:
            self._add_breakpoint(_number(arguments[0]))
        for line in sorted(self.breakpoints):
            self.write(f"break at {line}: {self._line(line)}")

    def _do_delete(self, stop: Stop, arguments: list[str]) -> None:
        if not arguments:
            raise ValueError("it takes a line")
        line = _number(arguments[0])
        if line not in self.breakpoints:
            raise ValueError(f"there is no breakpoint at line {line}")
        self.breakpoints.remove(line)

    def _do_focus(self, stop: Stop, arguments: list[str]) -> None:
        if len(arguments) == 1:
            raise ValueError("it takes a CTA and a warp")
        focus = (_number(arguments[0]), _number(arguments[1])) if arguments else None
        grid = math.prod(stop.machine.launch.grid_ctas)
        warps = -(-math.prod(stop.machine.launch.cta_threads) // 32)
        if focus and not (0 <= focus[0] < grid and 0 <= focus[1] < warps):
            raise ValueError(
                f"there are CTAs 0 to {grid - 1} of warps 0 to {warps - 1}, got {focus}"
            )
        self._focus = focus

    def _do_list(self, stop: Stop, arguments: list[str]) -> None:
        around = _positive(arguments[0]) if arguments else 5
        at = stop.instruction.line
        for line in range(max(1, at - around), min(len(self.lines), at + around) + 1):
            mark = ">" if line == at else "*" if line in self.breakpoints else " "
            self.write(f"{mark}{line:6}  {self.lines[line - 1].rstrip()}")

    def _do_print(self, stop: Stop, arguments: list[str]) -> None:
        registers = stop.registers()
        types = stop.machine.image.module.functions[stop.function].registers
        names = [a if a.startswith("%") else f"%{a}" for a in arguments] or list(registers)
        for name in names:
            if name not in types:
                raise ValueError(f"{name} is no register of {stop.function}")
            if name in registers:
                self.write(f"{name} = {shown(registers[name], types.get(name, ''))}")
            else:
                self.write(f"{name} is not read any more (or never was written)")

    def _do_barriers(self, stop: Stop, arguments: list[str]) -> None:
        ctas = {c.index: c for cluster in stop.machine.clusters for c in cluster.ctas}
        found = list(stop.barriers())
        for index, offset, barrier in found:
            self.write(f"CTA {index} {barrier_name(ctas[index], offset)}: {barrier}")
        if not found:
            self.write("no mbarrier has been initialised")

    def _do_flight(self, stop: Stop, arguments: list[str]) -> None:
        found = stop.in_flight()
        for kind, origin in found:
            self.write(f"{kind} of CTA {origin.cta} warp {origin.warp}, line {origin.line}")
        if not found:
            self.write("nothing is in flight")

    def _do_warps(self, stop: Stop, arguments: list[str]) -> None:
        for fragment in stop.machine.fragments():
            here = "*" if fragment is stop.fragment else " "
            lanes = "" if fragment.mask == fragment.warp.alive else f" lanes {fragment.mask:#010x}"
            where = f"at line {stop.instruction.line}" if here == "*" else describe(fragment)
            self.write(f"{here} {fragment.warp.name}{lanes}: {where}")

    def _do_shared(self, stop: Stop, arguments: list[str]) -> None:
        if not arguments:
            raise ValueError("it takes an offset or a symbol")
        cta = stop.fragment.cta
        name, _, plus = arguments[0].partition("+")
        symbols = {k.split("::")[-1]: v for k, v in stop.machine.image.shared.items()}
        if name in symbols:
            start = symbols[name]
        else:
            start = _number(name)
            if start < 0:
                raise ValueError(f"an offset must be at least 0, got {start}")
            start &= 0xFFFFFF  # of a shared::cluster address, the offset in the CTA's window
        start += _number(plus) if plus else 0
        count = _positive(arguments[1]) if len(arguments) > 1 else BYTES_SHOWN
        data = cta.smem.read(start, count)
        for at in range(0, count, 16):
            row = data[at : at + 16].tobytes()
            self.write(f"{start + at:#08x}  {row.hex(' ', 4)}")

    def _do_tmem(self, stop: Stop, arguments: list[str]) -> None:
        tmem = stop.fragment.cta.tmem
        live = ", ".join(f"columns {c} to {c + n - 1}" for c, n in sorted(tmem.allocations.items()))
        if not arguments:
            self.write(f"allocated: {live or 'nothing'}")
            return
        lane = _number(arguments[0])
        column = _number(arguments[1]) if len(arguments) > 1 else 0
        lanes, columns = tmem.cells.shape
        if not (0 <= lane < lanes and 0 <= column < columns):
            raise ValueError(
                f"lanes are 0 to {lanes - 1}, columns 0 to {columns - 1}, got {lane}, {column}"
            )
        words = tmem.cells[lane, column : column + 8]
        floats = ", ".join(f"{x:.6g}" for x in words.view(np.float32))
        self.write(f"lane {lane} columns {column} to {column + len(words) - 1}: {floats}")
        self.write("  " + " ".join(f"{int(w):08x}" for w in words))

    def _add_breakpoint(self, line: int) -> None:
        """Stop at a line, or at the next one that has an instruction."""
        at = bisect_left(self._code, line)
        if line < 1 or at == len(self._code):
            last = self._code[-1] if self._code else 0
            raise ArgumentError(
                f"there are instructions up to line {last} of the text, got {line}; try list"
            )
        found = self._code[at]
        if found != line:
            self.write(f"line {line} has no instruction; the next one is at {found}")
        self.breakpoints.add(found)

    def _line(self, line: int) -> str:
        return self.lines[line - 1].strip() if 1 <= line <= len(self.lines) else ""


def shown(value: Any, kind: str = "") -> str:
    """A register's value: alike in all lanes, linear in the lane, or each. `kind` is its type."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{_float(value)} ({value:#010x})" if kind == "f32" else f"{value} ({value:#x})"
    lanes, values = list(value), list(value.values())
    if isinstance(values[0], bool):
        return f"true in lanes {sum(1 << i for i, v in value.items() if v):#010x}"
    if len(set(values)) == 1:
        return shown(values[0], kind)
    if kind == "f32":
        return ", ".join(map(_float, values[:8])) + (", ..." if len(values) > 8 else "")
    step = (values[1] - values[0]) // (lanes[1] - lanes[0])
    if all(v == values[0] + step * (i - lanes[0]) for i, v in value.items()):
        return f"{values[0]} {'+' if step >= 0 else '-'} {abs(step)} per lane"
    some = ", ".join(f"{v:#x}" for v in values[:8])
    return f"{some}{', ...' if len(values) > 8 else ''}"


def _float(word: int) -> str:
    return f"{np.array([word], np.uint32).view(np.float32)[0]:.6g}"


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"{text!r} must be a number") from None


def _positive(text: str) -> int:
    number = _number(text)
    if number < 1:
        raise ValueError(f"a count must be at least 1, got {number}")
    return number

"""Program: one function of a PTX module, compiled piece by piece while it runs.

A version is a Python function of one piece of code for one mode and one set of register forms. It
is compiled when control first gets there; it returns the next version, or None when the lanes have
to wait, have parted or are done.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.flow import Flow, members
from ptxgen.emulator.micro import Micro, lower
from ptxgen.emulator.opcodes import RUNTIME
from ptxgen.emulator.progress import deciding_registers
from ptxgen.emulator.touches import watched_registers
from ptxgen.emulator.values import UNDEFINED, Context
from ptxgen.emulator.version import VersionWriter
from ptxgen.ptx.module import Function, Symbol

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment
    from ptxgen.emulator.image import Image

Version = Callable[["Fragment", list[Any]], Any]

MAX_VERSIONS = 24
"""Versions of one position; beyond, register forms are made general."""

_code: dict[str, CodeType] = {}
"""Compiled source by text: mutants of a kernel share nearly all of it."""


class Link:
    """Stands for a version that has not been compiled yet, and compiles it when called."""

    __slots__ = ("context", "guarded", "name", "namespace", "pc", "position", "program")

    def __init__(
        self,
        program: "Program",
        position: int,
        guarded: bool,
        context: Context,
        namespace: dict[str, Any],
        name: str,
    ) -> None:
        self.program = program
        self.position = position
        self.guarded = guarded
        self.context = context
        self.namespace = namespace
        self.name = name
        self.pc = program.pc(position, guarded)

    def __call__(self, fragment: "Fragment", registers: list[Any]) -> Any:
        version = self.program.version(self.position, fragment.mode, self.context, self.guarded)
        if self.namespace["MODE"] == fragment.mode:
            self.namespace[self.name] = version
        return version(fragment, registers)


class Program:
    """One function, with its versions."""

    def __init__(self, image: "Image", function: Function) -> None:
        self.image = image
        self.function = function
        self.flow = Flow(function)
        self.tid_is_linear = image.tid_is_linear
        self.observes_instructions = image.observes_instructions
        self.watched_registers = watched_registers(self.flow) if image.observed else 0
        self._micros: dict[int, list[Micro]] = {}
        self._versions: dict[tuple[int, str, Context, bool], Version] = {}
        self._num_versions: dict[tuple[int, str], int] = {}

    @cached_property
    def deciding(self) -> int:
        """The registers on which more depends than counters and naps."""
        return deciding_registers(self.flow)

    @property
    def num_slots(self) -> int:
        """Length of a register file: the registers, and as many places for slabs."""
        return 2 * len(self.flow.names) + 1

    def pc(self, position: int, guarded: bool) -> int:
        """Order of positions for the smallest-pc rule."""
        return 2 * position + guarded

    def symbol(self, operand: Symbol) -> str:
        """Expression of the address of a variable, parameter or function."""
        return self.image.symbol(self.function, operand)

    def micros(self, position: int) -> list[Micro]:
        """Micro-operations of the instruction at a position.

        Raises: UnknownInstructionError.
        """
        found = self._micros.get(position)
        if found is None:
            found = self._micros[position] = lower(self.flow.body[position])
        return found

    def entry(self, mode: str, given: Mapping[int, str] | None = None) -> Version:
        """The version at the first instruction, no register but the given ones being defined."""
        forms = given or {}
        context = tuple((n, forms.get(n, UNDEFINED)) for n in members(self.flow.live_in(0)))
        return self.version(0, mode, context, False)

    def version(self, position: int, mode: str, context: Context, guarded: bool) -> Version:
        """The version at a position for these forms."""
        key = (position, mode, context, guarded)
        found = self._versions.get(key)
        if found is None:
            found = self._versions[key] = self._compile(position, mode, context, guarded)
        return found

    def general(self, position: int, mode: str) -> bool:
        """Whether a position has so many versions that forms should be made general."""
        return self._num_versions.get((position, mode), 0) >= MAX_VERSIONS

    def _compile(self, position: int, mode: str, context: Context, guarded: bool) -> Version:
        self._num_versions[position, mode] = self._num_versions.get((position, mode), 0) + 1
        emitter = Emitter(self, position, mode, context, guarded)
        VersionWriter(self, emitter).write()
        source, lines = emitter.source()
        code = _code.get(source)
        if code is None:
            outer = compile(source, "<ptx>", "exec")
            code = next(c for c in outer.co_consts if isinstance(c, CodeType))
            if len(_code) > 50_000:
                _code.clear()
            _code[source] = code
        namespace = dict(RUNTIME)
        namespace["MODE"] = mode
        namespace["PTX_LINES"] = lines
        namespace["PROGRAM"] = self
        namespace["CONTEXT"] = context
        namespace["SOURCE"] = source
        for name, (target, flag, forms) in emitter.exits.items():
            namespace[name] = Link(self, target, flag, forms, namespace, name)
        function = FunctionType(code, namespace)
        vars(function).update(
            pc=self.pc(position, guarded), position=position, guarded=guarded, context=context,
            program=self,
        )  # fmt: skip
        return function

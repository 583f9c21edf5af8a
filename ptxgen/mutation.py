"""Mutants of a PTX text: every synchronising instruction removed or weakened, one at a time.

A mutant is a list of edits of the text, so that lines keep their numbers. What a checker makes of
the mutants measures the checker: one that nobody notices is either equivalent to the original, by a
named rule (mutation_rules.py), or a hole.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptxgen.mutation_operators import BARRIERS, weakened
from ptxgen.ptx.module import Function, Instruction
from ptxgen.ptx.parser import parse

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MOVE_PAST = 3
"""A proxy fence is moved past a barrier that follows within so many instructions."""


@dataclass(frozen=True)
class Statement:
    """One instruction, and where it stands."""

    instruction: Instruction
    start: int
    """Offset of its guard or opcode in the text."""
    end: int
    """Offset past its semicolon."""


@dataclass(frozen=True)
class Mutant:
    """A changed text."""

    operator: str
    """What was done: deleted, parity flipped, count + 1 ..."""
    line: int
    """1-based PTX line."""
    index: int
    """Instruction of the entry's body."""
    instruction: str
    """Its text before."""
    edits: tuple[tuple[int, int, str], ...]
    """(start, end, new text) in the original, in order."""

    @property
    def name(self) -> str:
        """Unique in one text."""
        return f"{self.line}: {self.operator}: {self.instruction}"

    def apply(self, text: str) -> str:
        """The changed text of the original `text`."""
        parts = []
        at = 0
        for start, end, new in self.edits:
            parts += [text[at:start], new]
            at = end
        return "".join((*parts, text[at:]))


def mutants(text: str, entry: str | None = None) -> list[Mutant]:
    """All mutants of one kernel of a PTX text, in the order of its lines.

    Raises: PtxSyntaxError, LaunchError if there is no such entry.
    """
    function = parse(text).entry(entry)
    found = []
    all_statements = statements(text, function)
    for index, statement in enumerate(all_statements):
        source = text[statement.start : statement.end]
        for operator, new in weakened(source):
            edit = (statement.start, statement.end, _with_newlines(new, source))
            found.append(_mutant(operator, statement, index, source, (edit,)))
        for operator, edits in _of_several(text, all_statements, index):
            found.append(_mutant(operator, statement, index, source, edits))
    return found


def statements(text: str, function: Function) -> list[Statement]:
    """The instructions of a function, with their places in the text, in order."""
    masked = _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    line_starts = [0]
    line_starts += [match.end() for match in re.finditer("\n", masked)]
    found = []
    at = 0
    for instruction in function.body:
        at = max(at, line_starts[instruction.line - 1])
        opcode = re.compile(rf"(?:@\s*!?\s*%?[\w$]+\s+)?(?<![\w.%$]){instruction.name}(?=[\s.;])")
        match = opcode.search(masked, at)
        assert match is not None, f"line {instruction.line} has no {instruction.name}"
        at = masked.index(";", match.end()) + 1
        found.append(Statement(instruction, match.start(), at))
    return found


def _mutant(
    operator: str,
    statement: Statement,
    index: int,
    source: str,
    edits: tuple[tuple[int, int, str], ...],
) -> Mutant:
    text = re.sub(r"\s+", " ", source)
    return Mutant(operator, statement.instruction.line, index, text, edits)


def _of_several(
    text: str, found: list[Statement], index: int
) -> Iterator[tuple[str, tuple[tuple[int, int, str], ...]]]:
    """Edits of an instruction together with a later one."""
    statement = found[index]
    instruction = statement.instruction
    source = text[statement.start : statement.end]
    if instruction.opcode.startswith("barrier.cluster.arrive") and index + 1 < len(found):
        following = found[index + 1]
        if following.instruction.opcode.startswith("barrier.cluster.wait"):
            yield "arrive and wait deleted", (_removal(text, statement), _removal(text, following))
    if instruction.opcode.startswith("fence.proxy.async"):
        for following in found[index + 1 : index + 1 + _MOVE_PAST]:
            if following.instruction.opcode.startswith(BARRIERS):
                moved = (following.end, following.end, f" {source}")
                yield "moved past the barrier", (_removal(text, statement), moved)
                break


def _removal(text: str, statement: Statement) -> tuple[int, int, str]:
    source = text[statement.start : statement.end]
    return statement.start, statement.end, _with_newlines("", source)


def _with_newlines(new: str, old: str) -> str:
    """The replacement of a text, as many lines long."""
    return new + "\n" * (old.count("\n") - new.count("\n"))

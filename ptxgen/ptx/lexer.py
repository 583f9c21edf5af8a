"""PTX text to tokens, in time linear in the text.

An opcode with all its modifiers, or an identifier with its component, is one word.
"""

import re
import sys
from bisect import bisect_right

from ptxgen.errors import PtxSyntaxError

MAX_TEXT_CHARS = 32 << 20
"""Longest text that is read. Generated modules of whole libraries stay below a third of it."""

IDENTIFIER_STARTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$%")

_TOKEN = re.compile(
    r"""
    [A-Za-z_$%][\w$]* (?: (?:\.|::)[\w$]+ )*   # opcode with modifiers, identifier, %tid.x
    | \.\w[\w$]* (?: ::\w+ )*                   # .reg, .b32, .shared::cta
    | \d+\.\d* (?:[eE][+-]?\d+)? | \d+[eE][+-]\d+ | \d\w*
    | "[^"]*"
    | <<|>>|<=|>=|==|!=|&&|\|\|
    | \S
    """,
    re.VERBOSE | re.ASCII,
)
_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*')


class Cursor:
    """The tokens of one text and a position in them.

    Reading past the end gives empty strings.
    """

    __slots__ = ("_starts", "position", "tokens")

    def __init__(self, tokens: list[str], starts: list[int]) -> None:
        self.tokens = tokens
        """Ends in two empty strings."""
        self._starts = starts
        self.position = 0
        """Index of the next word."""

    @property
    def word(self) -> str:
        """The next token; an empty string at the end."""
        return self.tokens[self.position]

    def line(self, position: int | None = None) -> int:
        """1-based line of the token at `position`, or of the next one."""
        return bisect_right(self._starts, self.position if position is None else position)

    def take(self) -> str:
        """The next word, which is passed."""
        word = self.tokens[self.position]
        if word:
            self.position += 1
        return word

    def accept(self, word: str) -> bool:
        """Pass the next word if it is `word`."""
        if self.tokens[self.position] == word:
            self.position += 1
            return True
        return False

    def expect(self, word: str, where: str) -> None:
        """Pass `word`.

        Raises: PtxSyntaxError if something else comes.
        """
        if not self.accept(word):
            raise self.error(f"expected {word!r} {where}")

    def identifier(self, what: str) -> str:
        """Pass an identifier, named `what` in messages.

        Raises: PtxSyntaxError if something else comes.
        """
        word = self.tokens[self.position]
        if word[:1] not in IDENTIFIER_STARTS or word == "%":
            raise self.error(f"expected {what}")
        self.position += 1
        return word

    def error(self, message: str, position: int | None = None) -> PtxSyntaxError:
        """An error at the next word, or at `position`, which names what came instead."""
        at = self.position if position is None else position
        word = self.tokens[at]
        got = f"{word[:60]!r}" if word else "the end of the text"
        line = self.line(max(0, at - 1) if not word else at)
        return PtxSyntaxError(f"line {line}: {message}, got {got}", line)


def tokenize(text: str) -> Cursor:
    """The tokens of `text`, comments removed.

    Raises: PtxSyntaxError for a text that is too long or a comment that does not end.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise PtxSyntaxError(
            f"the text has {len(text)} characters, at most {MAX_TEXT_CHARS} are read; "
            "give the PTX of one kernel, not of a whole library",
            1,
        )
    if "/" in text:
        text = _without_comments(text)
    find, intern = _TOKEN.findall, sys.intern
    tokens: list[str] = []
    starts: list[int] = []
    for line in text.rstrip("\0").split("\n"):
        starts.append(len(tokens))
        tokens += map(intern, find(line))
    tokens += ("", "")
    return Cursor(tokens, starts)


def _without_comments(text: str) -> str:
    """`text` with every comment blanked and every line break kept.

    Raises: PtxSyntaxError for a comment that does not end.
    """
    parts: list[str] = []
    copied = position = 0
    while (match := _COMMENT.search(text, position)) is not None:
        position = match.end()
        opening = match.group()
        if opening[0] == '"':
            continue
        parts.append(text[copied : match.start()])
        if opening == "/*":
            end = text.find("*/", position)
            if end < 0:
                line = text.count("\n", 0, match.start()) + 1
                raise PtxSyntaxError(f"line {line}: expected '*/' to end this comment", line)
            parts.append(" " + "\n" * text.count("\n", position, end))
            position = end + 2
        copied = position
    parts.append(text[copied:])
    return "".join(parts)

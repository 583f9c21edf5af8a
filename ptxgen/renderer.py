"""Plan -> PTX text. The only importer of jinja2."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from jinja2.ext import Extension

from ptxgen.errors import EmulationError, PtxError, RenderError
from ptxgen.plans import Plan

MARK_START, MARK_END = "\x01", "\x02"
"""Around the template line that a rendered line came from; removed before anyone sees the text."""
_MARK = re.compile(f"{MARK_START}([^{MARK_END}]*){MARK_END}")
_UNMARKED = re.compile(r"\s*(#|$)")
"""Template lines that print nothing: statements, comments, empty lines."""
_LABEL = re.compile(r"[A-Z]\w*:")
_GUARD = re.compile(r"(@!?%\w+)\s+")
INDENT = "    "


@dataclass(frozen=True)
class Rendered:
    """PTX text, and where each of its lines comes from."""

    text: str
    template_lines: tuple[str, ...]
    """For each line of the text: "gemm_sm90.ptx.j2:12", or "" for an empty line."""

    def template_line(self, line: int | None) -> str:
        """The template line behind 1-based PTX line `line`, or ""."""
        if line is None or not 1 <= line <= len(self.template_lines):
            return ""
        return self.template_lines[line - 1]

    def located(self, error: PtxError | EmulationError) -> PtxError | EmulationError:
        """The same error, its message naming the template line, too."""
        where = self.template_line(error.line)
        if where:
            error.args = (f"{error} ({where})",)
        return error


class _LineMarks(Extension):
    """Marks every printing template line with its own number, through macros and loops alike."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        lines = source.split("\n")
        return "\n".join(
            line if _UNMARKED.match(line) else f"{line}{MARK_START}{name}:{number}{MARK_END}"
            for number, line in enumerate(lines, 1)
        )


def _finalize(value: Any) -> Any:
    """Let only text and integers into PTX: a float, bool or None there is a defect."""
    if isinstance(value, (str, jinja2.Undefined)) or type(value) is int:
        return value
    raise RenderError(f"a template printed {value!r}; only strings and integers may enter PTX")


def _regs(prefix: str, count: int, first: int = 0) -> str:
    """A vector operand of `count` registers: regs("%acc", 2) is "{%acc0, %acc1}"."""
    return "{" + ", ".join(f"{prefix}{i}" for i in range(first, first + count)) + "}"


FILTERS = {"regs": _regs}


def _load(name: str) -> str | None:
    path = files("ptxgen.templates").joinpath(name)
    return path.read_text(encoding="utf-8") if path.is_file() else None


@cache
def environment() -> jinja2.Environment:
    """The one Jinja environment. PTX's `{%r0}` collides with Jinja's default delimiters."""
    env = jinja2.Environment(
        loader=jinja2.FunctionLoader(_load),
        block_start_string="<%",
        block_end_string="%>",
        line_statement_prefix="#",
        line_comment_prefix="##",
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 (PTX is no HTML)
        extensions=[_LineMarks],
        auto_reload=False,
    )
    env.filters.update(FILTERS)
    return env


def render(plan: Plan) -> Rendered:
    """Fill the template of `plan.kernel` with the plan.

    Raises: RenderError if template and plan disagree.
    """
    try:
        marked = environment().get_template(f"{plan.kernel}.ptx.j2").render(plan=plan)
    except jinja2.TemplateError as error:
        raise RenderError(f"template of {plan.kernel}: {error}") from error
    lines: list[str] = []
    origins: list[str] = []
    for line in marked.split("\n"):
        text, origin = _unmarked(line)
        if not text and (origin or not lines or not lines[-1]):
            continue
        lines.append(text)
        origins.append(origin)
    while lines and not lines[-1]:
        lines.pop()
        origins.pop()
    return Rendered("".join(f"{line}\n" for line in _indented(lines)), tuple(origins))


def _unmarked(line: str) -> tuple[str, str]:
    """A rendered line without its marks, and the first of them; most lines have one."""
    start = line.find(MARK_START)
    if start < 0:
        return line.rstrip(), ""
    end = line.index(MARK_END, start)
    text = line[:start] + line[end + 1 :]
    if MARK_START in text:
        text = _MARK.sub("", text)
    return text.rstrip(), line[start + 1 : end]


def _indented(lines: Iterable[str]) -> Iterator[str]:
    """The lines, each as deep as the braces around it; a label one less. A template cannot know how
    deep its macros are called."""
    depth = 0
    for line in lines:
        text = line.strip()
        first = text[:1]
        if "@" in text:
            text = _GUARD.sub(r"\1 ", text, count=1)
        depth -= first in ("}", ")")
        outward = 1 if first.isupper() and _LABEL.match(text) else 0
        yield INDENT * max(depth - outward, 0) + text if text else ""
        depth += text[-1:] in ("{", "(")

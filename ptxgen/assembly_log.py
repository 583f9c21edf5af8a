"""Reads what ptxas and nvJitLink say: messages with lines, and the resources of each entry."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Message:
    """One line that the assembler printed about the text."""

    severity: str
    """info, warning, error or fatal."""
    text: str
    code: str | None = None
    """e.g. C7508, where the assembler gives one. C75xx notes mean lost performance."""
    line: int | None = None
    """1-based PTX line, where the assembler names one (`around` for C75xx notes)."""
    template_line: str = ""
    """The template and line that printed it, e.g. parts/mainloop.ptx.j2:12, where known."""

    def __str__(self) -> str:
        where = "" if self.line is None else f"PTX line {self.line}"
        if self.template_line:
            where += f" ({self.template_line})"
        code = f"{self.code} " if self.code else ""
        return f"{where}: {code}{self.text}" if where else f"{code}{self.text}"


@dataclass(frozen=True)
class EntryUsage:
    """What one `.entry` takes."""

    name: str
    registers: int = 0
    """Registers per thread at entry."""
    stack_bytes: int = 0
    """Local memory frame per thread."""
    spill_store_bytes: int = 0
    """Bytes of spill stores, over the entry and the functions compiled into it."""
    spill_load_bytes: int = 0
    smem_bytes: int = 0
    """Static shared memory of one CTA; dynamic shared memory is the launch's."""
    barriers: int = 0
    """Named barriers (bar.sync), not mbarriers."""


_MESSAGE = re.compile(r"^ptxas(?:.*?, line (?P<line>\d+);)?\s+(?P<severity>\w+)\s*: (?P<text>.*)$")
_CODE = re.compile(r"^\((?P<code>C\d+)\) (?P<text>.*)$")
_STATISTICS = re.compile(
    r"^(Used \d+ registers|\d+ bytes gmem|Compiling entry function|Function properties for|"
    r"Compile time =|Ptx assembly aborted)"
)


def read_messages(log: str, template_lines: Sequence[str] | None) -> tuple[Message, ...]:
    """The messages in an assembler's log, without the statistics and without repetitions.

    `template_lines` holds, for each PTX line, the template line that printed it, or "".
    """
    messages: dict[Message, None] = {}
    for row in log.splitlines():
        match = _MESSAGE.match(row.rstrip())
        if match is None or _STATISTICS.match(match["text"]):
            continue
        text, code, line = match["text"], None, match["line"]
        coded = _CODE.match(text)
        if coded:
            code, text = coded["code"], coded["text"]
            around = re.search(r"\baround line (\d+)", text)
            line = around[1] if around else line
        number = int(line) if line else None
        template_line = ""
        if template_lines is not None and number is not None and number <= len(template_lines):
            template_line = template_lines[number - 1]
        messages[Message(match["severity"], text, code, number, template_line)] = None
    return tuple(messages)


def read_usage(log: str) -> tuple[EntryUsage, ...]:
    """The resources of each entry, from the log of a verbose run, in the log's order.

    Raises: ValueError if the log has no complete account of an entry that it names.
    """
    entries: list[EntryUsage] = []
    for row in log.splitlines():
        if match := re.search(r"Compiling entry function '(.*)' for", row):
            entries.append(EntryUsage(match[1], registers=-1))
        elif not entries:
            continue
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", row):
            last = entries[-1]
            entries[-1] = replace(
                last,
                stack_bytes=last.stack_bytes + int(match[1]),
                spill_store_bytes=last.spill_store_bytes + int(match[2]),
                spill_load_bytes=last.spill_load_bytes + int(match[3]),
            )
        elif match := re.match(r"ptxas info +: Used (\d+) registers(.*)", row):
            barriers = re.search(r"used (\d+) barriers", match[2])
            smem = re.search(r"(\d+) bytes smem", match[2])
            entries[-1] = replace(
                entries[-1],
                registers=int(match[1]),
                barriers=int(barriers[1]) if barriers else 0,
                smem_bytes=int(smem[1]) if smem else 0,
            )
    for entry in entries:
        if entry.registers < 0:
            raise ValueError(f"the log does not say how many registers {entry.name} uses:\n{log}")
    return tuple(entries)

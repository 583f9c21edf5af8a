"""How commands print: tables, JSON and files."""

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import click

from ptxgen import __version__
from ptxgen.errors import ArgumentError, LaunchError, OutputPathError
from ptxgen.files import discard, is_write_error, replacing
from ptxgen.launch import Launch

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout."
)


def print_json(schema: str, data: dict[str, Any]) -> None:
    """Print one object on stdout, with its schema and the version that wrote it."""
    click.echo(json_text(schema, data))


def json_text(schema: str, data: dict[str, Any]) -> str:
    """One object as text, with its schema and the version that wrote it."""
    return json.dumps({"schema": schema, "ptxgen_version": __version__, **data}, indent=1)


def compact_json(text: str, width: int = 100) -> str:
    """JSON text laid out with what fits on one line on one line."""
    return _laid_out(json.loads(text), "", width)


def _laid_out(value: Any, indent: str, width: int) -> str:
    flat = json.dumps(value)
    if not isinstance(value, dict | list) or not value or len(indent) + len(flat) <= width:
        return flat
    inner = f"{indent} "
    if isinstance(value, dict):
        items = [f"{json.dumps(k)}: {_laid_out(v, inner, width)}" for k, v in value.items()]
    else:
        items = [_laid_out(v, inner, width) for v in value]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{start}\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}{end}"


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on stdout: drawn on a terminal, aligned plain text elsewhere.

    A column is aligned to the right if all its cells are numbers.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[i], (int, float)) for row in rows)
        for i in range(len(columns))
    ]
    if sys.stdout.isatty():
        _draw(title, columns, cells, numeric)
        return
    widths = [max(len(row[i]) for row in (list(columns), *cells)) for i in range(len(columns))]
    if title:
        click.echo(title)
    for row in [list(columns), *cells] if any(columns) else cells:
        aligned = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        click.echo(("  " + "  ".join(aligned)).rstrip())
    click.echo()


def print_facts(title: str, facts: Mapping[str, object]) -> None:
    """Print names and values, one a line."""
    print_table(title, ("", ""), list(facts.items()))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _draw(title: str, columns: Sequence[str], cells: list[list[str]], numeric: list[bool]) -> None:
    """Draw a table with rich, which knows NO_COLOR and narrow encodings."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_header=any(columns),
    )
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    Console().print(table)


def note(text: str) -> None:
    """Say something about the work on stderr."""
    click.echo(text, err=True)


def read_text(source: str) -> str:
    """The text of a file, or of stdin if `source` is `-`.

    Raises: ArgumentError if it cannot be read, or is not text.
    """
    return as_text(read_bytes(source), source)


def read_launch(path: str) -> Launch:
    """The launch description in a file, or on stdin if `path` is `-`.

    Raises: ArgumentError if it cannot be read; LaunchError, which names the file.
    """
    try:
        return Launch.from_json(read_text(path))
    except LaunchError as error:
        raise LaunchError(f"{path}: {error}") from error


def as_text(content: bytes, source: str) -> str:
    """`content` of the file `source`, decoded.

    Raises: ArgumentError if it is not text.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(
            f"{source} must be UTF-8 text, got byte {content[error.start]:#04x} at offset "
            f"{error.start}; try another file"
        ) from error


def read_bytes(source: str) -> bytes:
    """The bytes of a file, or of stdin if `source` is `-`.

    Raises: ArgumentError if it cannot be read.
    """
    if source == "-":
        if sys.stdin is None:
            raise ArgumentError("stdin must be open to be read, got a closed one; try a FILE")
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise ArgumentError(
            f"cannot read {source}: {error.strerror}; try another path, or - for stdin"
        ) from error


@contextmanager
def output_files(*paths: str | None) -> Iterator[list[IO[bytes] | None]]:
    """Files to write, or stdout for `-`; None stays None. All appear when the block ends well.

    Raises: OutputPathError before the block runs, if one of them cannot be written, or two are one;
    or at its end, where there is no room for what was written.
    """
    places = [path if path == "-" else os.path.realpath(path) for path in paths if path]
    for place in places:
        if places.count(place) > 1 and (os.path.isfile(place) or not os.path.exists(place)):
            shown = "stdout" if place == "-" else place
            raise OutputPathError(
                f"outputs must go to different places, got {shown} twice; try another path"
            )
    with _room_for(paths), ExitStack() as stack:
        files: list[IO[bytes] | None] = []
        for path in paths:
            if path is None:
                files.append(None)
            elif path == "-":
                files.append(sys.stdout.buffer)
            else:
                try:
                    files.append(stack.enter_context(replacing(Path(path))))
                except OSError as error:
                    raise OutputPathError(
                        f"cannot write {path or 'to no name'}: {error.strerror or error}; try "
                        "another path"
                    ) from error
        yield files
        for file in files:
            if file is not None:
                file.flush()  # if nobody reads it, or it is full, no other file appears either


@contextmanager
def _room_for(paths: Sequence[str | None]) -> Iterator[None]:
    """Name the paths if a write to one of them fails.

    Raises: OutputPathError.
    """
    try:
        yield
    except OSError as error:
        if not is_write_error(error) or not any(paths):
            raise
        if "-" in paths:
            discard(sys.stdout)
        else:
            sys.stdout.flush()  # fails again if what could not be written was printed
        places = " or ".join("stdout" if path == "-" else path for path in paths if path)
        raise OutputPathError(
            f"cannot write to {places}: {error.strerror}; try another path"
        ) from error


def finite(value: float) -> float | None:
    """JSON has no infinity: null stands for it."""
    return value if math.isfinite(value) else None

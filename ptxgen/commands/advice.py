"""What to change where options of a config do not go together: only what is proven to be legal."""

import re
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from ptxgen.errors import ConfigError

Fields = Mapping[str, Any]
Make = Callable[[Fields], object]
"""Makes a config that has some fields. Raises: ConfigError."""

SIZES: dict[str, range] = {
    "tile_n": range(8, 257, 8),
    "tile_m": range(16, 257, 16),
    "warpgroups": range(1, 4),
    "stages": range(1, 33),
}
"""Fields of which near values are tried, and their range."""
SHOWN = 2
"""Changes that are named."""


def with_proven_hint(
    error: ConfigError, make: Make, chosen: Fields, option_of: Callable[[str], str]
) -> ConfigError:
    """The error, whose hint names what makes the config legal: its own if it does, else the
    nearest value of one option or the fewest options to leave out; its own, too, if nothing does.

    make: makes a config of fields. chosen: the fields that were refused. option_of: the option
    that gives a field.
    """
    text, _, hint = str(error).partition("; try ")
    for name, value in re.findall(r"\b([a-z_]+)<?=(\w+)", hint):
        if name in chosen and _is_legal(make, {**chosen, name: _value(value)}):
            return error
    changes = [
        _shown(name, changed, option_of)
        for name in SIZES
        if name in chosen and (changed := _near(make, chosen, name)) is not None
    ]
    changes += [f"without {' and '.join(options)}" for options in _fewest(make, chosen, option_of)]
    if not changes:
        return error
    return ConfigError(f"{text}; try {', or '.join(changes[:SHOWN])}")


def _value(text: str) -> int | str | bool:
    """The value of a field that a hint names."""
    return text == "on" if text in ("on", "off") else int(text) if text.isdecimal() else text


def _is_legal(make: Make, fields: Fields) -> bool:
    try:
        make(fields)
    except ConfigError:
        return False
    return True


def _near(make: Make, chosen: Fields, name: str) -> dict[str, Any] | None:
    """The fields with the value of one that is legal and nearest to what it was, the smaller of
    two."""
    for value in sorted(SIZES[name], key=lambda v: (abs(v - chosen[name]), v)):
        changed = {**chosen, name: value}
        if value != chosen[name] and _is_legal(make, changed):
            return changed
    return None


def _fewest(make: Make, chosen: Fields, option_of: Callable[[str], str]) -> list[tuple[str, ...]]:
    """The smallest sets of options without which the others are legal."""
    given = list(dict.fromkeys(map(option_of, chosen)))
    for count in range(1, len(given) + 1):
        found = [
            options
            for options in combinations(given, count)
            if _is_legal(make, {n: v for n, v in chosen.items() if option_of(n) not in options})
        ]
        if found:
            return found
    return []


def _shown(name: str, fields: Fields, option_of: Callable[[str], str]) -> str:
    """The option that gives a field, with its value."""
    if name.startswith("tile_"):
        sizes = [fields[f"tile_{axis}"] for axis in "mnk" if f"tile_{axis}" in fields]
        return f"--tile {'x'.join(map(str, sizes))}"
    return f"{option_of(name)} {fields[name]}"

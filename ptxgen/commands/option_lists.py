"""Options that several commands share, as lists."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def with_options(command: F, options: Sequence[Callable[[F], F]]) -> F:
    """The command with options, which its help lists in their order."""
    for option in reversed(options):
        command = option(command)
    return command

"""How far slow work is, on stderr."""

import _thread
import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ptxgen.commands.output import note

PERIOD_S = 5.0
"""Silence that is broken."""


class Bar:
    """A line that says what is being done, how much of it is done, and how long that takes."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=None)

    def show(self, what: str, done: float, total: float) -> None:
        """`what` is being done, and `done` of `total` of it is."""
        self._progress.update(self._task, description=what, completed=done, total=total)

    def say(self, text: str) -> None:
        """Say something above the bar."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def bar_shown() -> Iterator[Bar | None]:
    """A bar on stderr while the block runs; None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with progress.Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as drawn:
        yield Bar(drawn)


class Progress:
    """What is being done, and how much of it is done."""

    def __init__(self) -> None:
        self.tell("starting")

    def tell(self, what: str) -> None:
        """Something else is done from now on."""
        self.what, self.done, self.total = what, 0, 0
        self.began = time.monotonic()

    def count(self, done: int, total: int) -> None:
        """`done` of `total` clusters are done."""
        self.done, self.total = done, total

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        text = f"{self.what}: {seconds:.0f} s"
        if not self.done:
            return text
        left = seconds * (self.total - self.done) / self.done
        return f"{text}, {self.done} of {self.total} clusters, about {left:.0f} s left"


@contextmanager
def progress_shown(device: Any) -> Iterator[Progress]:
    """Say every few seconds what the block does, and how far the emulator is.

    Raises: BrokenPipeError in the block if nobody reads what is said.
    """
    progress, ended, unread = Progress(), threading.Event(), threading.Event()

    def show() -> None:
        while not ended.wait(PERIOD_S):
            try:
                note(str(progress))
            except BrokenPipeError:
                unread.set()
                _thread.interrupt_main()
                return

    if hasattr(device, "progress"):
        device.progress = progress.count
    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield progress
    except KeyboardInterrupt:
        if unread.is_set():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
        raise
    finally:
        ended.set()
        thread.join()

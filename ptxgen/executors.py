"""executors: where work runs that many cores or machines may share, by a short text."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import active_children

from ptxgen.errors import ArgumentError

FORMS = "threads:N, processes:N or MODULE:ATTRIBUTE"


@contextmanager
def executor_of(text: str) -> Iterator[Executor]:
    """The executor that `text` names, until the block ends. If it fails, what has not begun is
    dropped, and processes of it end.

    threads:N and processes:N (N may be left out: the number of cores), or MODULE:ATTRIBUTE, an
    Executor or a function that returns one (Dask, MPI, loky, ...).

    Raises: ArgumentError if there is no such executor.
    """
    others = set(active_children())
    executor = _executor(text)
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - others:
            process.terminate()
        raise
    executor.shutdown()


def _executor(text: str) -> Executor:
    kind, _, rest = text.partition(":")
    if kind in ("threads", "processes"):
        workers = _workers(text, rest)
        if kind == "threads":
            return ThreadPoolExecutor(workers)
        from multiprocessing import get_context

        return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        found = getattr(import_module(kind), rest)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(
            f"executor {text!r} must be {FORMS}: {error}; try processes:4"
        ) from error
    try:
        made = found if isinstance(found, Executor) else found()
    except TypeError as error:
        raise ArgumentError(
            f"executor {text!r} must be an Executor or a function without arguments that returns "
            f"one, got {error}; try processes:N"
        ) from error
    if not isinstance(made, Executor):
        raise ArgumentError(
            f"executor {text!r} must be a concurrent.futures.Executor, got {type(made).__name__}; "
            "try processes:4"
        )
    return made


def _workers(text: str, count: str) -> int:
    if not count:
        return os.cpu_count() or 1
    if not count.isdecimal() or int(count) < 1:
        raise ArgumentError(f"executor {text!r} must have at least one worker; try threads:4")
    return int(count)

"""Streams of callers: what may be passed as `stream=`, as the handle that the driver takes."""

from typing import Any

from ptxgen.errors import ArgumentError

LEGACY_STREAM = 1
"""CU_STREAM_LEGACY: the default stream that waits for the others."""
PER_THREAD_STREAM = 2
"""CU_STREAM_PER_THREAD: the calling thread's default stream."""


def stream_handle(stream: Any) -> int:
    """The CUstream value of `stream`; 0 is the legacy default stream.

    Takes None (the legacy default stream), an integer handle (0, or LEGACY_STREAM or
    PER_THREAD_STREAM), an object with `__cuda_stream__` (version 0), or one with `.ptr` (CuPy) or
    `.cuda_stream` (torch).

    Raises: ArgumentError.
    """
    if stream is None:
        return 0
    if isinstance(stream, bool):
        raise ArgumentError(f"stream must be a handle or a stream object, got {stream}; try None")
    if isinstance(stream, int):
        return _checked(stream, "stream")
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        answer = protocol() if callable(protocol) else protocol
        if not isinstance(answer, tuple) or len(answer) != 2 or int(answer[0]) != 0:
            raise ArgumentError(
                f"stream.__cuda_stream__ must give (0, handle), got {answer!r};"
                " try passing the handle as an int"
            )
        return _checked(int(answer[1]), "stream.__cuda_stream__")
    for attribute in ("ptr", "cuda_stream"):
        value = getattr(stream, attribute, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return _checked(value, f"stream.{attribute}")
    raise ArgumentError(
        f"stream must be None, an int handle, an object with __cuda_stream__ or CuPy's stream,"
        f" got {type(stream).__name__}; try its integer handle"
    )


def _checked(handle: int, what: str) -> int:
    if not 0 <= handle < 1 << 64:
        raise ArgumentError(f"{what} must be a CUstream handle (0..2^64-1), got {handle}; try None")
    return handle

"""Contents of buffers that a run is given no data for."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ptxgen.emulator.formats import encode
from ptxgen.emulator.memory import POISON
from ptxgen.errors import LaunchError
from ptxgen.launch import Buffer

MOST_BYTES = 4 << 30
"""What buffers may hold together: the host keeps them, and copies to compare with. Sizes that the
emulator can compute in a day need far less; more is a stride, or a size, that nobody meant."""


def check_sizes(buffers: Iterable[Buffer]) -> None:
    """Refuse buffers, each counted once, that are too large for the emulator, before they are made.

    Raises: LaunchError.
    """
    sizes = {buffer.name: buffer.nbytes for buffer in buffers}
    total = sum(sizes.values())
    if total > MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise LaunchError(
            f"buffers on the emulator must hold at most {MOST_BYTES} bytes together, got {total}, "
            f"{sizes[largest]} of them in {largest!r}; try smaller sizes or strides"
        )


def initial_bytes(buffer: Buffer) -> bytes:
    """The bytes that `buffer.init` asks for.

    Raises: LaunchError for an init that is not known, a file that cannot be read or has another
    size, or more bytes than this machine has memory.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if buffer.nbytes > memory:
        raise LaunchError(
            f"buffer {buffer.name!r}: nbytes={buffer.nbytes} must fit into the memory here of "
            f"{memory} bytes; try a smaller problem"
        )
    kind, _, rest = buffer.init.partition(":")
    if kind == "poison":
        return bytes([POISON]) * buffer.nbytes
    if kind == "zeros":
        return bytes(buffer.nbytes)
    if kind == "file":
        return _content(buffer, rest)
    if kind == "hex":
        return _written_out(buffer, rest)
    if kind == "random":
        return _random(buffer, rest)
    raise LaunchError(
        f"buffer {buffer.name!r}: init must be poison, zeros, random:DTYPE:SEED, file:PATH or "
        f"hex:BYTES, got {buffer.init!r}; try zeros"
    )


def _content(buffer: Buffer, path: str) -> bytes:
    """The file's bytes. It may be endless: no more than needed is read."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(buffer.nbytes + 1)
    except OSError as error:
        raise LaunchError(f"buffer {buffer.name!r}: {error}; try another path") from error
    if len(content) != buffer.nbytes:
        size = f"{len(content)} bytes" if len(content) < buffer.nbytes else "more"
        raise LaunchError(
            f"buffer {buffer.name!r}: {path} must hold nbytes={buffer.nbytes} bytes, got {size}; "
            "try another file, or the file's size as nbytes"
        )
    return content


def _written_out(buffer: Buffer, digits: str) -> bytes:
    try:
        content = bytes.fromhex(digits)
    except ValueError as error:
        raise LaunchError(
            f"buffer {buffer.name!r}: hex: must have two hexadecimal digits for each byte, got "
            f"{digits[:16]!r} ({error}); try hex:00ff for nbytes=2"
        ) from error
    if len(content) != buffer.nbytes:
        raise LaunchError(
            f"buffer {buffer.name!r}: hex: must hold nbytes={buffer.nbytes} bytes, got "
            f"{len(content)}; try nbytes={len(content)}"
        )
    return content


def _random(buffer: Buffer, rest: str) -> bytes:
    name, _, seed = rest.partition(":")
    widths = {"e4m3": 1, "e5m2": 1, "bf16": 2, "f16": 2, "f32": 4}
    if name not in widths or not seed.isdigit():
        raise LaunchError(
            f"buffer {buffer.name!r}: random needs one of {', '.join(widths)} and a seed, got "
            f"{buffer.init!r}; try random:bf16:0"
        )
    size = widths[name]
    values = np.random.default_rng(int(seed)).standard_normal(-(-buffer.nbytes // size))
    if name == "f32":
        return values.astype(np.float32).tobytes()[: buffer.nbytes]
    kind = np.uint8 if size == 1 else np.uint16
    return encode(name, values, saturate=True).astype(kind).tobytes()[: buffer.nbytes]

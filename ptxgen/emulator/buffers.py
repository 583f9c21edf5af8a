"""Contents of buffers that a run is given no data for."""

from pathlib import Path

import numpy as np

from ptxgen.emulator.formats import encode
from ptxgen.emulator.memory import POISON
from ptxgen.errors import LaunchError
from ptxgen.launch import Buffer


def initial_bytes(buffer: Buffer) -> bytes:
    """The bytes that `buffer.init` asks for.

    Raises: LaunchError for an init that is not known, or a file that cannot be read.
    """
    kind, _, rest = buffer.init.partition(":")
    if kind == "poison":
        return bytes([POISON]) * buffer.nbytes
    if kind == "zeros":
        return bytes(buffer.nbytes)
    if kind == "file":
        try:
            return Path(rest).read_bytes()
        except OSError as error:
            raise LaunchError(f"buffer {buffer.name!r}: {error}") from error
    if kind == "random":
        return _random(buffer, rest)
    raise LaunchError(
        f"buffer {buffer.name!r}: init must be poison, zeros, random:DTYPE:SEED or file:PATH, got "
        f"{buffer.init!r}"
    )


def _random(buffer: Buffer, rest: str) -> bytes:
    name, _, seed = rest.partition(":")
    widths = {"e4m3": 1, "e5m2": 1, "bf16": 2, "f16": 2, "f32": 4}
    if name not in widths or not seed.isdigit():
        raise LaunchError(
            f"buffer {buffer.name!r}: random needs one of {', '.join(widths)} and a seed, as in "
            f"random:bf16:0; got {buffer.init!r}"
        )
    size = widths[name]
    values = np.random.default_rng(int(seed)).standard_normal(-(-buffer.nbytes // size))
    if name == "f32":
        return values.astype(np.float32).tobytes()[: buffer.nbytes]
    kind = np.uint8 if size == 1 else np.uint16
    return encode(name, values, saturate=True).astype(kind).tobytes()[: buffer.nbytes]

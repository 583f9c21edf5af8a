"""Kernel parameters as bytes, as the launch gives them and the entry declares them."""

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ptxgen.emulator.tensor_map import encode_launch_map
from ptxgen.errors import LaunchError
from ptxgen.launch import Launch, Param

if TYPE_CHECKING:
    from ptxgen.emulator.image import Image

_FORMATS = {"u32": "<I", "s32": "<i", "u64": "<Q", "s64": "<q", "f32": "<f"}


def pack_parameters(image: "Image", launch: Launch, addresses: Mapping[str, int]) -> bytes:
    """The parameter block of a launch.

    Raises: LaunchError where launch and entry do not fit.
    """
    entry = image.entry
    if len(launch.params) != len(entry.params):
        raise LaunchError(
            f"entry {entry.name} has {len(entry.params)} parameters "
            f"({', '.join(p.name for p in entry.params)}), the launch gives {len(launch.params)}; "
            "try one for each"
        )
    block = bytearray(max(image.param_bytes, 1))
    for given, declared in zip(launch.params, entry.params, strict=True):
        data = parameter_bytes(given, addresses)
        if len(data) != declared.nbytes:
            raise LaunchError(
                f"parameter {declared.name} of {entry.name} has {declared.nbytes} B, the launch's "
                f"{given.name} ({given.kind}) has {len(data)} B; try another kind"
            )
        start = image.param_offsets[declared.name]
        block[start : start + len(data)] = data
    return bytes(block)


def parameter_bytes(param: Param, addresses: Mapping[str, int]) -> bytes:
    """The bytes of one parameter.

    Raises: LaunchError for a value that does not fit its kind.
    """
    try:
        if param.kind == "pointer":
            base = 0 if param.value is None else addresses[param.value]
            return struct.pack("<Q", base + param.offset_bytes)
        if param.kind == "tensor_map":
            buffer = param.value.buffer
            return encode_launch_map(param.value, 0 if buffer is None else addresses[buffer])
        if param.kind == "bytes":
            return bytes.fromhex(param.value)
        return struct.pack(_FORMATS[param.kind], param.value)
    except KeyError as error:
        raise LaunchError(
            f"parameter {param.name}: no address for buffer {error}; try to add it to buffers"
        ) from error
    except (struct.error, ValueError, TypeError, OverflowError) as error:
        raise LaunchError(
            f"parameter {param.name}: {param.value!r} is not a {param.kind}: {error}; try "
            "another value or kind"
        ) from error

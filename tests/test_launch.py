"""Launch descriptions: what is written is read again, and what is malformed is refused by name."""

import json
from typing import Any

import pytest

from ptxgen.errors import LaunchError
from ptxgen.launch import Buffer, Launch, Param, TensorMap

LAUNCH = Launch(
    "kernel",
    (4, 1, 1),
    (128, 1, 1),
    (2, 1, 1),
    1024,
    (
        Param("map", "tensor_map", TensorMap("x", dims=(64, 8), strides_bytes=(64,), box=(64, 8))),
        Param("pointer", "pointer", "x", 16),
        Param("alpha", "f32", 0.5),
    ),
    (Buffer("x", 512, "inout", "zeros"),),
)


def test_a_launch_is_read_as_it_was_written() -> None:
    assert Launch.from_json(LAUNCH.to_json()) == LAUNCH


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("entry",), 5, "launch: entry must be text, got 5"),
        (("grid_ctas",), [4, 1], "grid_ctas must be three integers >= 1"),
        (("grid_ctas", 0), 2**31, "grid_ctas must be at most"),
        (("grid_ctas", 1), True, "launch: grid_ctas must be a list of integers"),
        (("grid_ctas", 0), 3, "must be a multiple of cluster_ctas"),
        (("cta_threads", 0), 1025, "cta_threads must be at most 1024"),
        (("dynamic_smem_bytes",), "big", "dynamic_smem_bytes must be an integer, got 'big'"),
        (("dynamic_smem_bytes",), -1, "dynamic_smem_bytes must be >= 0"),
        (("buffers", 0, "nbytes"), -1, "buffer x: nbytes must be in 0"),
        (("buffers", 0, "nbytes"), 1.5, "buffers: nbytes must be an integer, got 1.5"),
        (("buffers", 0, "role"), "output", "role must be one of in, out, inout, got 'output'"),
        (("buffers", 0, "init"), 0, "buffers: init must be text, got 0"),
        (("params", 0, "value", "box"), 8, "tensor map: box must be a list of integers, got 8"),
        (("params", 1, "value"), "y", "parameter pointer names buffer 'y'"),
        (("params", 2, "kind"), "f16", "kind 'f16' must be one of"),
        (("params", 2, "size"), 4, "params: unknown key 'size'"),
    ],
)
def test_a_malformed_launch_is_refused_by_name(
    path: tuple[Any, ...], value: Any, message: str
) -> None:
    data = json.loads(LAUNCH.to_json())
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(LaunchError, match=message):
        Launch.from_json(json.dumps(data))

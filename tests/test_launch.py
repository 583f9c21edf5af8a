"""Launch descriptions: what is written is read again, and what is malformed is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from ptxgen.emulator.buffers import initial_bytes
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


def test_a_workspace_begins_as_zeros() -> None:
    with pytest.raises(LaunchError, match="must begin as zeros, got init='poison'; try"):
        Buffer("x", 512, "workspace")


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
        (("buffers", 0, "nbytes"), -1, "buffer x: nbytes must be in 0.* got -1; try 0"),
        (("buffers", 0, "nbytes"), 1.5, r"buffers\[0\]: nbytes must be an integer, got 1.5"),
        (("buffers", 0, "role"), "output", "role must be one of in, out, inout, workspace, got"),
        (("buffers", 0, "init"), 0, r"buffers\[0\]: init must be text, got 0"),
        (("params", 0, "value", "box"), 8, "tensor map: box must be a list of integers, got 8"),
        (("params", 1, "value"), "y", "buffer of parameter pointer must be one of .*, got 'y'"),
        (("params", 2, "kind"), "f16", "kind must be one of .*, got 'f16'; try"),
        (("params", 2, "size"), 4, r"params\[2\]: each key must be one of .*, got 'size'"),
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


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("cta_threads",), "launch: key 'cta_threads' is missing; try"),
        (("params", 1, "value"), r"params\[1\]: key 'value' is missing"),
        (("params", 0, "value", "buffer"), r"params\[0\]: tensor map: key 'buffer' is missing"),
        (("buffers", 0, "nbytes"), r"buffers\[0\]: key 'nbytes' is missing"),
    ],
)  # fmt: skip
def test_a_missing_key_is_named_with_its_place(path: tuple[Any, ...], message: str) -> None:
    data = json.loads(LAUNCH.to_json())
    place = data
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    with pytest.raises(LaunchError, match=message):
        Launch.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("held", "said"), [(3, "got 3 bytes"), (5, "got more"), (None, "got more")]
)
def test_a_file_that_fills_a_buffer_has_its_size(
    tmp_path: Path, held: int | None, said: str
) -> None:
    path = Path("/dev/zero") if held is None else tmp_path / "x.raw"
    if held is not None:
        path.write_bytes(bytes(held))
    with pytest.raises(LaunchError, match=f"must hold nbytes=4 bytes, {said}; try"):
        initial_bytes(Buffer("x", 4, init=f"file:{path}"))


def test_contents_can_be_written_out() -> None:
    launch = Launch("e", (1, 1, 1), (32, 1, 1), buffers=(Buffer("x", 2), Buffer("y", 2)))
    changed = Launch.from_json(launch.with_contents({"y": b"\x00\xff"}).to_json())
    assert [initial_bytes(b) for b in changed.buffers] == [b"\xff\xff", b"\x00\xff"]


@pytest.mark.parametrize(
    ("init", "says"), [("hex:0", "got '0'"), ("hex:00", "must hold nbytes=2 bytes, got 1")]
)
def test_contents_that_are_no_bytes_of_the_buffer_are_refused(init: str, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        initial_bytes(Buffer("x", 2, init=init))


@pytest.mark.parametrize("init", ["poison", "zeros", "random:bf16:0"])
def test_a_buffer_larger_than_memory_is_refused(init: str) -> None:
    with pytest.raises(LaunchError, match=r"buffer 'x': nbytes=.* must fit"):
        initial_bytes(Buffer("x", 1 << 47, init=init))

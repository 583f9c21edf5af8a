"""The kernels that measure ceilings compute what they claim to, on the emulator and on a GPU."""

import ml_dtypes
import numpy as np
import pytest

from ptxgen.assembler import assemble
from ptxgen.errors import ConfigError, ToolMissingError
from ptxgen.kernels import empty, stream_read_sm90, wgmma_issue_sm90
from ptxgen.launch import Device
from ptxgen.plans import Plan
from ptxgen.renderer import render

KINDS = {"e4m3": ml_dtypes.float8_e4m3fn, "bf16": ml_dtypes.bfloat16}
CTAS = 2


@pytest.mark.parametrize("name", ["e4m3", "bf16"])
@pytest.mark.parametrize(("num_tiles", "num_k_tiles"), [(1, 1), (2, 3), (1, 6)])
def test_wgmma_ceiling_computes_every_k_tile_of_every_tile(
    device: Device, name: str, num_tiles: int, num_k_tiles: int
) -> None:
    config = wgmma_issue_sm90.Config(name, mma_n=64)
    plan = wgmma_issue_sm90.plan(num_tiles, num_k_tiles, CTAS, config)
    # A is 1 and B is 2^stage, so a tile's element is K times the sum over its k-tiles' stages.
    data = np.ones((wgmma_issue_sm90.STAGES, config.stage_bytes // np.dtype(KINDS[name]).itemsize))
    values = [2.0**stage for stage in range(wgmma_issue_sm90.STAGES)]
    data[:, config.a_tile.rows * config.tile_k :] = np.array(values)[:, None]
    sums = run(device, plan, data.astype(KINDS[name]).tobytes())
    first = (num_tiles - 1) * num_k_tiles
    stages = [(first + i) % wgmma_issue_sm90.STAGES for i in range(num_k_tiles)]
    element = config.tile_k * sum(values[stage] for stage in stages)
    assert set(sums.tolist()) == {element * config.mma_n / 2}


def run(device: Device, plan: Plan, data: bytes) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """The sums that each thread writes."""
    sizes = {buffer.name: buffer.nbytes for buffer in plan.launch.buffers}
    addresses = {name: device.alloc(nbytes) for name, nbytes in sizes.items()}
    device.write(addresses["data"], data)
    device.write(addresses["sums"], b"\xff" * sizes["sums"])
    device.launch(plan.launch, render(plan).text, addresses)
    found = np.frombuffer(device.read(addresses["sums"], sizes["sums"]), np.float32)
    for address in addresses.values():
        device.free(address)
    return found


@pytest.mark.parametrize("num_chunks", [1, 3, 4, 5, 6, 7, 13])
def test_read_stream_ends_for_any_number_of_chunks(device: Device, num_chunks: int) -> None:
    config = stream_read_sm90.Config(chunk_bytes=1024, stages=3)
    plan = stream_read_sm90.plan(num_chunks * config.chunk_bytes, CTAS, config)
    address = device.alloc(num_chunks * config.chunk_bytes)
    device.write(address, bytes(num_chunks * config.chunk_bytes))
    device.launch(plan.launch, render(plan).text, {"data": address})
    device.read(address, 0)
    device.free(address)


def test_an_empty_launch_ends(device: Device) -> None:
    plan = empty.plan(3, 1 << 16)
    device.launch(plan.launch, render(plan).text, {})


def test_ceiling_kernels_assemble_without_spills_or_notes() -> None:
    plans = [
        empty.plan(132, 1 << 16),
        stream_read_sm90.plan(1 << 30, 132),
        wgmma_issue_sm90.plan(96, 64, 132),
        wgmma_issue_sm90.plan(96, 64, 132, wgmma_issue_sm90.Config("bf16")),
    ]
    for plan in plans:
        try:
            assemble(render(plan).text).require_clean()
        except ToolMissingError as error:
            pytest.skip(str(error))


def test_flop_counts_all_multiplications_and_additions() -> None:
    config = wgmma_issue_sm90.Config("e4m3", 256, 2)
    assert wgmma_issue_sm90.flop(config, 132, 1, 1) == 132 * 2 * 128 * 256 * 128


@pytest.mark.parametrize(
    ("config", "nbytes"),
    [
        (stream_read_sm90.Config(chunk_bytes=100), 1000),
        (stream_read_sm90.Config(stages=0), 1 << 20),
        (stream_read_sm90.Config(stages=15), 1 << 20),
        (stream_read_sm90.Config(), 1000),
    ],
)
def test_illegal_streams_are_refused(config: stream_read_sm90.Config, nbytes: int) -> None:
    with pytest.raises(ConfigError, match="must be"):
        stream_read_sm90.plan(nbytes, CTAS, config)

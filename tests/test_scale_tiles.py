"""Micro scales: from rows to atoms, to tensor memory."""

import numpy as np
import pytest

from ptxgen.scale_tiles import ATOM_BYTES, ScaleTile, pack_scales, packed_scale_bytes

tensor_layouts = pytest.importorskip("tensor_layouts")


def test_atoms_are_those_of_cutlass() -> None:
    """Blocked layout ((32,4),(scales per word, 4)) : ((16,4),(0,1)), K atoms first."""
    rows, scales = 300, 10
    x = np.random.default_rng(0).integers(1, 255, (rows, scales)).astype(np.uint8)
    packed = pack_scales(x)
    k_atoms = -(-scales // 4)
    atom = tensor_layouts.Layout(
        ((32, 4, -(-rows // 128)), (4, k_atoms)), ((16, 4, 512 * k_atoms), (1, 512))
    )
    for row in range(rows):
        for scale in range(scales):
            place = atom((row % 32, row // 32 % 4, row // 128), (scale % 4, scale // 4))
            assert packed[place] == x[row, scale]


def test_padding_is_zero_and_counted() -> None:
    packed = pack_scales(np.full((1, 1), 127, np.uint8))
    assert packed.size == packed_scale_bytes(1, 1) == ATOM_BYTES
    assert np.count_nonzero(packed) == 1


def test_a_tile_has_room_for_each_atom_once_in_both_memories() -> None:
    tile = ScaleTile("b", blocks=2, atoms=4)
    every = [(block, atom) for block in range(2) for atom in range(4)]
    assert sorted(tile.smem_offset(*x) for x in every) == list(range(0, tile.nbytes, ATOM_BYTES))
    assert sorted(tile.column(*x) for x in every) == list(range(0, tile.columns, 4))

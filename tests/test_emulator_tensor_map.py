"""Tensor maps: 128 bytes there and back, and which maps are refused."""

from typing import Any

import numpy as np
import pytest

from ptxgen.emulator.tensor_map import DecodedMap, Im2col, decode, encode, from_launch, replace
from ptxgen.errors import EmulationError, LaunchError
from ptxgen.launch import TensorMap

RNG = np.random.default_rng(7)


def test_tensor_map_survives_128_bytes() -> None:
    fields: dict[str, Any] = {
        "element_type": "tfloat32",
        "dims": (2**32, 7, 5),
        "strides_bytes": (2**40 - 16, 48),
    }
    plain = DecodedMap(
        0x7F00001230, box=(8, 256, 3), element_strides=(1, 8, 2), swizzle="128B_ATOM_64B",
        l2_promotion="256B", oob_fill="nan", **fields,
    )  # fmt: skip
    assert decode(encode(plain)) == plain
    for rank in (3, 4, 5):
        corners = ((-16, 3, -7)[: rank - 2], (15, -1, 0)[: rank - 2])
        im2col = DecodedMap(
            0x1000, "bfloat16", (64, 9, 8, 7, 6)[:rank], (128,) * (rank - 1), (), (1,) * rank,
            im2col=Im2col(*corners, 64, 1024),
        )  # fmt: skip
        assert decode(encode(im2col)) == im2col


def test_tensor_map_words_are_those_seen_on_an_h200() -> None:
    m = DecodedMap(
        0x7F1234560, "bfloat16", (4096, 100), (8192,), (64, 128), (1, 1), "128B", "none", "256B"
    )
    words = np.frombuffer(encode(m), np.uint64).tolist()
    assert words[0] == 0x7F1234560
    assert words[1] == (1 << 4) | (10 << 7) | (3 << 13) | (3 << 17) | (8192 >> 4) << 32
    assert words[4] == 4095 | 99 << 32
    assert words[6] == 63 << 56
    assert words[7] == 127
    assert words[8] == 64 * 128 * 2
    assert words[9] == 1024


def test_replaced_fields_decode() -> None:
    data = encode(DecodedMap(0x1000, "uint8", (256, 64), (256,), (64, 16), (1, 1)))
    data = replace(data, "global_address", 0x2000)
    data = replace(data, "global_dim", 31, 1)
    data = replace(data, "global_stride", 512, 0)
    data = replace(data, "box_dim", 32, 0)
    data = replace(data, "swizzle_mode", 2)
    assert decode(data) == DecodedMap(
        0x2000, "uint8", (256, 31), (512,), (32, 16), (1, 1), swizzle="64B"
    )


def test_map_that_was_never_encoded_is_named() -> None:
    with pytest.raises(EmulationError, match="never encoded"):
        decode(bytes(128))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"dims": (), "strides_bytes": (), "box": ()}, "1 to 5 dims"),
        ({"offset_bytes": 8}, "multiple of 16"),
        ({"strides_bytes": (24,)}, "multiple of 16"),
        ({"strides_bytes": (2**40,)}, "below 2"),
        ({"box": (64, 257)}, "256"),
        ({"box": (7, 8)}, "multiple of 16 bytes"),
        ({"element_strides": (9, 1)}, "element_strides"),
        ({"swizzle": "64B", "box": (64, 8)}, "64 B"),
        ({"interleave": "16B"}, "3 dims"),
        ({"element_type": "uint16", "oob_fill": "nan"}, "floating"),
        ({"box": (256, 256), "element_type": "float64", "swizzle": "none"}, "shared memory"),
        ({"swizzle": "128"}, "swizzle must be one of .*, got .128.; try 128B"),
        ({"dims": (0, 64)}, "dims"),
        ({"element_type": "16u4_align16b", "box": (128, 4), "dims": (130, 4)}, "multiple of 128"),
    ],
)
def test_illegal_tensor_map_is_refused_with_its_rule(change: dict[str, Any], rule: str) -> None:
    legal = {
        "element_type": "bfloat16", "dims": (256, 64), "strides_bytes": (512,), "box": (64, 8),
        "element_strides": (1, 1), "swizzle": "128B",
    }  # fmt: skip
    m = TensorMap("a", **{**legal, **change})
    with pytest.raises(LaunchError, match=rule):
        from_launch(m, 0x1000 + m.offset_bytes)


def test_any_128_bytes_decode_or_are_named_as_no_map() -> None:
    """A kernel may hand TMA garbage: it must end in our own error type."""
    legal = encode(DecodedMap(0x1000, "uint8", (256, 64), (256,), (64, 16), (1, 1)))
    for _ in range(300):
        data = bytearray(legal)
        for at in RNG.integers(0, 128, RNG.integers(1, 12)):
            data[at] = RNG.integers(0, 256)
        try:
            found = decode(bytes(data))
        except EmulationError:
            continue
        assert 1 <= found.rank <= 5

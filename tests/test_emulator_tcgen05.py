"""tcgen05.mma: operand split, accumulator layouts, and what it reads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tcgen05_ctas import (
    A_AT,
    B_AT,
    D_AT,
    RNG,
    SIZE,
    Cta,
    cell_of,
    idesc,
    integers,
    new_ctas,
    place_operands,
    read_d,
    run_simple,
    write_d,
)

from ptxgen.emulator.formats import decode, encode
from ptxgen.emulator.tcgen05_mma import (
    MmaOperands,
    execute_tcgen05_mma,
    mma_cells,
    parse_tcgen05_mma,
)
from ptxgen.errors import EmulationError

CASES = [
    ("f16", "bf16", "bf16", "f32", 128, 24, 1, False),
    ("f16", "f16", "f16", "f16", 64, 32, 1, False),
    ("f16", "bf16", "bf16", "f32", 256, 32, 2, False),
    ("f16", "f16", "f16", "f32", 128, 64, 2, False),
    ("tf32", "tf32", "tf32", "f32", 128, 16, 1, False),
    ("f8f6f4", "e4m3", "e5m2", "f32", 64, 48, 1, False),
    ("f8f6f4", "e2m1", "e3m2", "f32", 128, 16, 1, False),
    ("f8f6f4", "e2m3", "e4m3", "f16", 256, 32, 2, False),
    ("i8", "s8", "u8", "s32", 128, 32, 1, False),
    ("i8", "u8", "s8", "s32", 128, 64, 2, False),
    ("f16", "bf16", "bf16", "f32", 64, 64, 1, True),
    ("f8f6f4", "e5m2", "e5m2", "f32", 32, 128, 1, True),
    ("i8", "u8", "u8", "s32", 128, 64, 1, True),
]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("kind", "a_type", "b_type", "d_type", "m", "n", "group", "ws"), CASES)
def test_mma_multiplies_small_integers_exactly(
    kind: str,
    a_type: str,
    b_type: str,
    d_type: str,
    m: int,
    n: int,
    group: int,
    ws: bool,
    exact: bool,
    accumulate: bool,
) -> None:
    ctas = new_ctas(group)
    k = 32 // SIZE.get(a_type, 1)
    a_codes, a = integers(kind, a_type, (m, k))
    b_codes, b = integers(kind, b_type, (n, k))
    a_bits, b_bits = place_operands(ctas, kind, a_type, b_type, a_codes, b_codes)
    c = RNG.integers(-9, 10, (m, n))
    to_words: Callable[[Any], Any] = {
        "f32": lambda x: x.astype(np.float32).view(np.uint32),
        "f16": lambda x: x.astype(np.float16).view(np.uint16).astype(np.uint32),
        "s32": lambda x: x.astype(np.int32).view(np.uint32),
    }[d_type]
    write_d(ctas, to_words(c), group, ws)
    op = parse_tcgen05_mma(
        f"tcgen05.mma{'.ws' if ws else ''}.cta_group::{group}.kind::{kind}".split(".")
    )
    bits = idesc(kind, m, n, a_type, b_type, d_type)
    operands = MmaOperands(D_AT, a_bits, b_bits, bits, accumulate=accumulate)
    before = [cta.tmem.cells.copy() for cta in ctas]
    execute_tcgen05_mma(op, operands, ctas, exact=exact)
    wanted = a @ b.T + (c if accumulate else 0)
    assert np.array_equal(read_d(ctas, m, n, group, ws), to_words(wanted))
    for rank, cta in enumerate(ctas):
        untouched = np.ones(cta.tmem.cells.size, bool)
        untouched[mma_cells(op, operands, rank)] = False
        assert np.array_equal(cta.tmem.cells.ravel()[untouched], before[rank].ravel()[untouched])


@pytest.mark.parametrize(("m", "group"), [(64, 1), (128, 1), (128, 2), (256, 2)])
@pytest.mark.parametrize("types", [("f16", "bf16"), ("f8f6f4", "e4m3"), ("f8f6f4", "e2m1"),
                                   ("tf32", "tf32")])  # fmt: skip
def test_a_may_come_from_tensor_memory(m: int, group: int, types: tuple[str, str]) -> None:
    kind, name = types

    def change(ctas: list[Cta], a_codes: Any, b_codes: Any) -> dict[str, Any]:
        codes = a_codes << 2 if name == "e2m1" else a_codes
        words = codes.view(np.uint8).reshape(m, 32).view(np.uint32)
        for r in range(m):
            cta, lane, _ = cell_of(m, 32, r, 0, group, False)
            ctas[cta].tmem.cells[lane, 400:408] = words[r]
            if m == 128 and group == 2:
                ctas[cta].tmem.cells[lane + 64, 400:408] = words[r]
        return {"a": 400, "a_in_tmem": True}

    got, wanted = run_simple(m, 32, group, change, kind, (name, name))
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize(("negate", "sign"), [(1, -1), (2, -1), (3, 1)])
def test_negate_bits_flip_operands(negate: int, sign: int) -> None:
    got, wanted = run_simple(negate=negate)
    assert np.array_equal(got, sign * wanted)


def test_m64_may_start_at_lane_16() -> None:
    got, wanted = run_simple(64, d=16 << 16 | D_AT)
    assert np.array_equal(got, wanted)
    with pytest.raises(EmulationError, match="start at a lane"):
        run_simple(128, d=16 << 16 | D_AT)


@pytest.mark.parametrize(("m", "group"), [(128, 1), (256, 2)])
def test_disabled_lanes_keep_their_old_contents(m: int, group: int) -> None:
    words = [int(w) for w in RNG.integers(0, 1 << 32, 4 * group, np.uint32)]
    got, wanted = run_simple(m, group=group, disabled_lanes=tuple(words))
    for r in range(m):
        if words[r // 32] >> r % 32 & 1:
            assert (got[r].view(np.uint32) == 0xFFFFFFFF).all()
        else:
            assert np.array_equal(got[r], wanted[r])


def test_scale_input_d_divides_the_addend_by_a_power_of_two() -> None:
    def change(ctas: list[Cta], a_codes: Any, b_codes: Any) -> dict[str, Any]:
        write_d(ctas, np.full((128, 32), 24, np.float32).view(np.uint32), 1)
        return {"accumulate": True, "scale_d": 3}

    got, wanted = run_simple(change=change)
    assert np.array_equal(got, wanted + 3)


def test_mn_major_operands_read_transposed_tiles() -> None:
    def change(ctas: list[Cta], a_codes: Any, b_codes: Any) -> dict[str, Any]:
        # unswizzled MN-major: 16-byte row chunks 128 B apart, groups of 8 k after all of them
        found = {}
        for key, codes, start in (("a", a_codes, A_AT), ("b", b_codes, B_AT)):
            rows, leading = len(codes), len(codes) // 8 * 128
            for r in range(rows):
                for k in range(16):
                    at = start + r * 2 % 16 + r // 8 * 128 + k % 8 * 16 + k // 8 * leading
                    ctas[0].smem.store_int(at, int(codes[r, k]), 2)
            found[key] = start >> 4 | leading >> 4 << 16 | 8 << 32 | 1 << 46
        return found

    got, wanted = run_simple(major=3, change=change)
    assert np.array_equal(got, wanted)


def test_fp8_keeps_25_bits_unlike_wgmma() -> None:
    ctas = new_ctas(1)
    a = np.zeros((128, 32), np.uint8)
    a[:, :2] = encode("e5m2", np.array([1.0, 2.0**-14])).astype(np.uint8)
    b = encode("e5m2", np.ones((16, 32))).astype(np.uint8)
    a_bits, b_bits = place_operands(ctas, "f8f6f4", "e5m2", "e5m2", a, b)
    op = parse_tcgen05_mma(["cta_group::1", "kind::f8f6f4"])
    bits = idesc("f8f6f4", 128, 16, "e5m2", "e5m2")
    operands = MmaOperands(D_AT, a_bits, b_bits, bits, accumulate=False)
    execute_tcgen05_mma(op, operands, ctas, exact=True)
    assert (read_d(ctas, 128, 16, 1).view(np.float32) == 1 + 2.0**-14).all()
    assert decode("e5m2", a)[0, 1] == 2.0**-14

"""The divisions that a launch brings along are exact, for as many tiles as a launch may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxgen.errors import ConfigError
from ptxgen.raster import DIVIDEND_BITS, division, raster_params

NUMBERS = st.one_of(
    st.integers(0, (1 << DIVIDEND_BITS) - 1),
    st.builds(lambda b, d: max(0, (1 << b) + d), st.integers(0, 30), st.integers(-2, 2)),
)


@given(dividend=NUMBERS, divisor=NUMBERS.map(lambda x: x or 1), multiple=st.integers(-1, 1))
def test_a_division_is_exact(dividend: int, divisor: int, multiple: int) -> None:
    multiplier, shift = division(divisor)
    near = max(0, dividend // divisor * divisor + multiple)
    assert multiplier < 1 << 32
    for x in (dividend, near):
        assert x * multiplier < 1 << 64
        assert x * multiplier >> shift == x // divisor


def test_more_tiles_than_the_divisions_are_exact_for_are_refused() -> None:
    rows = 1 << 16
    assert raster_params(rows, (1 << DIVIDEND_BITS) // rows - 1, 8)
    with pytest.raises(ConfigError, match="must be fewer than 2147483648"):
        raster_params(rows, (1 << DIVIDEND_BITS) // rows, 8)

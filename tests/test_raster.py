"""The divisions that a launch brings along are exact."""

from hypothesis import given
from hypothesis import strategies as st

from ptxgen.raster import DIVIDEND_BITS, division

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

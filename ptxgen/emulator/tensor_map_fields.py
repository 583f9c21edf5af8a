"""Bit fields in a list of 64-bit words."""

from typing import NamedTuple


class Field(NamedTuple):
    """`width` bits from bit `low` of word `word`."""

    word: int
    low: int
    width: int


def get(words: list[int], field: Field) -> int:
    """The unsigned value of a field."""
    return words[field.word] >> field.low & ((1 << field.width) - 1)


def put(words: list[int], field: Field, value: int) -> None:
    """Set a field to the low bits of `value`."""
    mask = (1 << field.width) - 1
    words[field.word] = words[field.word] & ~(mask << field.low) | (value & mask) << field.low

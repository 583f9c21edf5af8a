"""`ptxgen decode`: descriptors, bit by bit."""

from dataclasses import asdict

import click

from ptxgen.commands.output import json_option, print_json, print_table
from ptxgen.errors import ArgumentError
from ptxgen.inspection.descriptor_fields import (
    INSTRUCTION_KINDS,
    MATRIX_VERSIONS,
    decode_instruction_descriptor,
    decode_matrix_descriptor,
)


@click.command("decode")
@click.argument("descriptors", nargs=-1, required=True, metavar="VALUE...")
@click.option(
    "--kind",
    type=click.Choice(INSTRUCTION_KINDS),
    help="It is a 32-bit instruction descriptor of tcgen05.mma of this kind.",
)
@click.option(
    "--version",
    type=click.Choice(MATRIX_VERSIONS),
    help="Generation of a matrix descriptor [default: as its own bits say].",
)
@json_option
def command(
    descriptors: tuple[str, ...], kind: str | None, version: str | None, as_json: bool
) -> None:
    """Explain a matrix descriptor or an instruction descriptor bit by bit.

    VALUE is hexadecimal (0x...), binary (0b...) or decimal. Without --kind it is the 64-bit matrix
    descriptor of a tile in shared memory.
    """
    if kind and version:
        raise click.UsageError(
            "--kind is for instruction, --version for matrix descriptors; try without"
        )
    decoded = []
    for text in descriptors:
        value = _number(text)
        fields = (
            decode_instruction_descriptor(value, kind)
            if kind
            else decode_matrix_descriptor(value, version)
        )
        decoded.append((value, fields))
    if as_json:
        print_json(
            "ptxgen.decode/1",
            {
                "kind": kind,
                "descriptors": [
                    {"value": f"{value:#x}", "fields": [asdict(f) for f in fields]}
                    for value, fields in decoded
                ],
            },
        )
        return
    for value, fields in decoded:
        print_table(
            f"{value:#0{10 if kind else 18}x}",
            ("bits", "field", "raw", "meaning"),
            [(f.bits, f.name, f"{f.raw:#x}", f.meaning) for f in fields],
        )


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ArgumentError(
            f"a descriptor must be a number, got {text!r}; try 0x4000004000000000"
        ) from None

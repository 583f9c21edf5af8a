"""Descriptors that a config hands to the Tensor Core, decoded: those of wgmma, or of tcgen05."""

from typing import Any

from ptxgen.inspection.descriptor_fields import (
    Field,
    decode_instruction_descriptor,
    decode_matrix_descriptor,
)
from ptxgen.layout import OperandTile
from ptxgen.plans import Plan
from ptxgen.tcgen05_config import Tcgen05Config
from ptxgen.tcgen05_descriptors import N_SHIFT


def config_descriptors(plan: Plan, config: Any) -> dict[str, list[Field]]:
    """Title -> fields, of matrix and instruction descriptors; start addresses are left out."""
    if isinstance(config, Tcgen05Config):
        return _tcgen05_descriptors(plan, config)
    found = {}
    for name in ("A", "B"):
        tile = getattr(config, f"{name.lower()}_tile", None)
        if isinstance(tile, OperandTile):
            word = tile.descriptor.encode()
            title = f"Matrix descriptor of {name} {word:#018x}, without its start address"
            found[title] = decode_matrix_descriptor(word, "sm_90")
    return found


def _tcgen05_descriptors(plan: Plan, config: Tcgen05Config) -> dict[str, list[Field]]:
    found = {}
    words = (int(plan.a_descriptor, 16), int(plan.b_descriptor, 16))
    for operand, word in zip(config.operands, words, strict=True):
        title = f"Matrix descriptor of {operand.upper()} {word:#018x}, without its start address"
        found[title] = decode_matrix_descriptor(word, "sm_100")
    if config.scale_tiles:
        word = int(plan.scale_descriptor, 16)
        title = f"Matrix descriptor of scales {word:#018x}, without its start address"
        found[title] = decode_matrix_descriptor(word, "sm_100")
    instruction = int(plan.instruction_descriptor, 16)
    note = ""
    if config.swap_ab:
        instruction |= config.columns >> 3 << N_SHIFT
        note = ", N at most"
    title = f"Instruction descriptor of kind::{plan.kind} {instruction:#010x}{note}"
    found[title] = decode_instruction_descriptor(instruction, plan.kind)
    return found

"""launch_template: a launch description for somebody else's PTX, as far as the text tells it."""

from collections.abc import Iterator
from dataclasses import replace

from ptxgen.launch import Buffer, Launch, Param, TensorMap
from ptxgen.ptx.module import Address, Function, Instruction, Module, Parameter, Register, Symbol
from ptxgen.ptx.parser import parse

TENSOR_MAP_BYTES = 128
PLACEHOLDER_BYTES = 65536
"""Size of a buffer that only its owner knows."""
PLACEHOLDER_BOX = 64
WARP_THREADS = 32
_SCALARS = {"u32": "u32", "s32": "s32", "b32": "u32", "f32": "f32", "u64": "u64", "s64": "s64",
            "b64": "u64"}  # fmt: skip
_CARRIES = ("mov", "add", "sub", "mad", "cvta", "selp", "shfl", "or")
"""Instructions whose result may be the address that an operand was."""


def launch_template(text: str, entry: str | None = None) -> tuple[Launch, list[str]]:
    """A launch that loads, and one line for everything in it that somebody must fill in.

    entry: which kernel; None where there is only one.

    Raises: PtxSyntaxError, LaunchError if there is no such entry.
    """
    module = parse(text)
    function = module.entry(entry)
    notes: list[str] = []
    cta_threads = _shape(function, ("reqntid", "maxntid"), (WARP_THREADS, 1, 1))
    if "reqntid" not in function.directives:
        known = "maxntid" in function.directives
        limit = "at most .maxntid" if known else "the text does not say"
        notes.append(f"cta_threads: threads of a CTA ({limit})")
    cluster = _shape(function, ("reqnctapercluster",), (1, 1, 1))
    if "explicitcluster" in function.directives and cluster == (1, 1, 1):
        notes.append("cluster_ctas: .explicitcluster asks for a cluster, the launch says which")
    notes.append("grid_ctas: the grid, counted in CTAs; a small one is checked sooner")
    if _dynamic_shared(module):
        notes.append("dynamic_smem_bytes: the text declares dynamic shared memory")
    params: list[Param] = []
    buffers: list[Buffer] = []
    for parameter in function.params:
        params.append(_param(function, parameter, buffers, notes))
    launch = Launch(
        function.name, cluster, cta_threads, cluster, 0, tuple(params), tuple(buffers)
    )  # fmt: skip
    return launch, notes


def _shape(
    function: Function, directives: tuple[str, ...], fallback: tuple[int, int, int]
) -> tuple[int, int, int]:
    for name in directives:
        values = function.directives.get(name, ())
        if values:
            x, y, z = (*values, 1, 1)[:3]
            return x, y, z
    return fallback


def _dynamic_shared(module: Module) -> bool:
    return any(v.space == "shared" and not v.nbytes for v in module.variables.values())


def _param(
    function: Function, parameter: Parameter, buffers: list[Buffer], notes: list[str]
) -> Param:
    name = parameter.name
    uses = list(_uses(function, name))
    if parameter.is_array and parameter.nbytes == TENSOR_MAP_BYTES and parameter.align >= 64:
        return _tensor_map(name, uses, buffers, notes)
    if parameter.is_array or parameter.type not in _SCALARS:
        unit = "byte" if parameter.nbytes == 1 else "bytes"
        notes.append(f"params {name}: {parameter.nbytes} {unit}, as hexadecimal text")
        return Param(name, "bytes", "00" * parameter.nbytes)
    kind = _SCALARS[parameter.type]
    if kind in ("u64", "s64") and (parameter.pointer_space or _is_pointer(uses)):
        written = any(_writes(i) for i, is_address in uses if is_address)
        read = any(_reads(i) for i, is_address in uses if is_address)
        role = "inout" if written and read else "out" if written else "in"
        buffers.append(_buffer(name, role))
        notes.append(f"buffers {name}: size, role and content of what the pointer points to")
        return Param(name, "pointer", name)
    notes.append(f"params {name}: a value")
    return Param(name, kind, 1.0 if kind == "f32" else 0)


def _buffer(name: str, role: str) -> Buffer:
    return Buffer(name, PLACEHOLDER_BYTES, role, "poison" if role == "out" else "random:bf16:0")


def _tensor_map(
    name: str, uses: list[tuple[Instruction, bool]], buffers: list[Buffer], notes: list[str]
) -> Param:
    rank, stores, loads = 2, False, False
    for instruction, is_address in uses:
        if not is_address or "tensor" not in instruction.modifiers:
            continue
        rank = next((int(m[0]) for m in instruction.modifiers if m[1:] == "d"), rank)
        is_store = "bulk_group" in instruction.modifiers
        stores, loads = stores or is_store, loads or not is_store
    role = "inout" if stores and loads else "out" if stores else "in"
    dims = (PLACEHOLDER_BOX,) * rank
    strides = [2 * PLACEHOLDER_BOX]
    for size in dims[1:-1]:
        strides.append(strides[-1] * size)
    tensor_map = TensorMap(
        name, 0, "uint16", dims, tuple(strides[: rank - 1]), (PLACEHOLDER_BOX,) + (1,) * (rank - 1)
    )
    buffer = _buffer(name, role)
    nbytes = 2 * PLACEHOLDER_BOX**rank
    buffers.append(replace(buffer, nbytes=max(nbytes, buffer.nbytes)))
    notes.append(
        f"params {name}: a tensor map of {rank} dimensions, innermost first: element_type, dims, "
        "strides_bytes, box, swizzle as given to cuTensorMapEncodeTiled; and its buffer"
    )
    return Param(name, "tensor_map", tensor_map)


def _uses(function: Function, parameter: str) -> Iterator[tuple[Instruction, bool]]:
    """Instructions that a parameter reaches through registers; whether as base of an address."""
    carriers: set[str] = set()
    for _ in range(2):  # a loop may carry a register backwards
        for instruction in function.body:
            if _touches(instruction, carriers, parameter) and (
                instruction.name in _CARRIES
                or (instruction.name == "ld" and "param" in instruction.modifiers[0])
            ):
                destination = instruction.operands[0]
                if isinstance(destination, Register):
                    carriers.add(destination.name)
    for instruction in function.body:
        bases = [o.base for o in instruction.operands if isinstance(o, Address)]
        if any(isinstance(b, Register) and b.name in carriers for b in bases):
            yield instruction, True
        elif _touches(instruction, carriers, parameter):
            yield instruction, False


def _touches(instruction: Instruction, carriers: set[str], parameter: str) -> bool:
    for operand in instruction.operands[1:]:
        inner = operand.base if isinstance(operand, Address) else operand
        if isinstance(inner, Symbol) and inner.name == parameter:
            return True
        if (
            not isinstance(operand, Address)
            and isinstance(inner, Register)
            and inner.name in carriers
        ):
            return True
    return False


def _is_pointer(uses: list[tuple[Instruction, bool]]) -> bool:
    return any(
        is_address
        or (instruction.name == "cvta" and "param" not in instruction.modifiers)
        or (instruction.name == "tensormap" and "global_address" in instruction.modifiers)
        for instruction, is_address in uses
    )


def _writes(instruction: Instruction) -> bool:
    return instruction.name in ("st", "red", "atom") or "bulk_group" in instruction.modifiers


def _reads(instruction: Instruction) -> bool:
    if instruction.name == "cp":
        return "bulk_group" not in instruction.modifiers
    return instruction.name in ("ld", "atom", "red", "ldu")

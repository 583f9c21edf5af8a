"""Module: PTX text as data. Scopes are resolved, so that a body is one flat list."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ptxgen.errors import LaunchError, not_one_of

TYPE_BYTES: dict[str, int] = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "e4m3": 1, "e5m2": 1,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "u128": 16, "s128": 16, "pred": 1,
    "texref": 8, "samplerref": 8, "surfref": 8,
}  # fmt: skip
"""Bytes of a variable or parameter of each fundamental type."""


@dataclass(frozen=True, slots=True)
class Register:
    """A register, `%r1`, or a special register, `%tid.x`. `name` keeps the percent sign."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal, constant expressions folded."""

    value: int | float
    """An int for kind `int`. Hexadecimal integers stay unsigned."""
    kind: str = "int"
    """int, f32 (`0f...`) or f64 (`0d...` and decimal literals)."""
    bits: int = 0
    """IEEE bit pattern of an f32 or f64."""

    def __str__(self) -> str:
        if self.kind == "int":
            return str(self.value)
        return f"0f{self.bits:08X}" if self.kind == "f32" else f"0d{self.bits:016X}"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, parameter, function or label, as a value."""

    name: str
    offset: int = 0
    """Bytes added to its address, as in `mov.u32 %r, buffer+16`."""

    def __str__(self) -> str:
        return f"{self.name}{self.offset:+d}" if self.offset else self.name


@dataclass(frozen=True, slots=True)
class Negated:
    """`!%p`."""

    register: Register

    def __str__(self) -> str:
        return f"!{self.register}"


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result that is thrown away."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True, slots=True)
class Pair:
    """`%r|%p`: two destinations."""

    first: "Register | Sink"
    second: "Register | Sink"

    def __str__(self) -> str:
        return f"{self.first}|{self.second}"


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ...}`."""

    items: "tuple[Operand, ...]"

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.items)) + "}"


@dataclass(frozen=True, slots=True)
class Address:
    """`[base+offset]`, or `[base, {c0, c1}]` of tensor copies and textures."""

    base: Register | Symbol | Immediate
    offset: int = 0
    """Bytes."""
    coordinates: Vector | None = None

    def __str__(self) -> str:
        inner = f"{self.base}+{self.offset}" if self.offset else str(self.base)
        return f"[{inner}, {self.coordinates}]" if self.coordinates is not None else f"[{inner}]"


Operand = Register | Immediate | Symbol | Negated | Sink | Pair | Vector | Address


def leaves(operand: Operand) -> Iterator[Operand]:
    """The operand, or what it is made of: neither pairs, vectors nor addresses, in text order."""
    parts: tuple[Operand, ...]
    if isinstance(operand, Vector):
        parts = operand.items
    elif isinstance(operand, Pair):
        parts = (operand.first, operand.second)
    elif isinstance(operand, Address):
        parts = (operand.base,)
        if operand.coordinates is not None:
            parts = (operand.base, operand.coordinates)
    else:
        yield operand
        return
    for part in parts:
        yield from leaves(part)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction."""

    name: str
    """Base opcode: wgmma, cp, ld."""
    modifiers: tuple[str, ...]
    """The other dot-separated parts in order; `shared::cta` is one part."""
    operands: tuple[Operand, ...]
    """In source order. A call has (returns Vector, callee, arguments Vector[, prototype])."""
    guard: tuple[str, bool] | None
    """(predicate register, negated) of `@%p` or `@!%p`."""
    line: int
    """1-based line of the text."""

    @property
    def opcode(self) -> str:
        """Name and modifiers joined by dots."""
        return ".".join((self.name, *self.modifiers))

    @property
    def text(self) -> str:
        """The instruction written out, with resolved names."""
        guard = "" if self.guard is None else f"@{'!' if self.guard[1] else ''}{self.guard[0]} "
        return f"{guard}{self.opcode} {', '.join(map(str, self.operands))}".rstrip() + ";"


@dataclass(frozen=True, slots=True)
class Relocation:
    """The address of a symbol inside an initialiser."""

    offset: int
    """Byte in the variable."""
    nbytes: int
    symbol: str
    addend: int
    generic: bool
    """Written as `generic(symbol)`: the address in the generic space."""
    shift_bits: int = 0
    """The address is shifted right by so much first: a mask such as `0xFF00(symbol)`."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in memory."""

    name: str
    space: str
    """global, shared, local, const or param."""
    type: str
    """Element type without its dot: b8, f32."""
    align: int
    """Bytes."""
    vector: int
    """Lanes of one element: 1, 2 or 4."""
    dims: tuple[int, ...]
    """Array dimensions, outermost first; () is a scalar, (0,) an unsized extern array."""
    line: int
    linkage: str = ""
    """extern, visible, weak, common or nothing."""
    initial: bytes | None = None
    """Bytes of the whole variable; None where it has no initialiser."""
    relocations: tuple[Relocation, ...] = ()
    shared_space: str = ""
    """cta or cluster where the text says `.shared::cta`; unused elsewhere."""

    @property
    def count(self) -> int:
        """Elements (vectors count once)."""
        total = 1
        for dim in self.dims:
            total *= dim
        return total

    @property
    def nbytes(self) -> int:
        """Bytes of the whole variable; 0 for an unsized array."""
        return TYPE_BYTES[self.type] * self.vector * self.count


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, or return value, of a function."""

    name: str
    type: str
    """Element type: b8 of a byte array, u64."""
    nbytes: int
    align: int
    """Bytes."""
    is_array: bool = False
    is_register: bool = False
    """Declared as `.reg` (device functions only)."""
    pointer_space: str = ""
    """Space of a `.ptr` parameter, where stated."""
    pointer_align: int = 0
    """Bytes; 0 where not stated."""


@dataclass(frozen=True, slots=True)
class Function:
    """An `.entry` or `.func`."""

    name: str
    is_entry: bool
    params: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    directives: Mapping[str, tuple[int, ...]]
    """Performance and linking directives: maxntid -> (384, 1, 1), explicitcluster -> ()."""
    registers: Mapping[str, str]
    """Unique name -> type (b32, pred) of every register that is declared by name, or that the
    body uses from a range such as `%r<10>`. Of two scopes' `%p` the later is `%p$1`."""
    variables: Mapping[str, Variable]
    """Shared, local, param and static global variables declared inside."""
    body: tuple[Instruction, ...]
    labels: Mapping[str, int]
    """Label -> index into body, which may be len(body)."""
    line: int
    linkage: str = ""
    """extern, visible, weak or nothing."""
    is_declaration: bool = False
    """It has no body."""
    branch_targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`.branchtargets` and `.calltargets` lists by label."""
    prototypes: Mapping[str, tuple[tuple[Parameter, ...], tuple[Parameter, ...]]] = field(
        default_factory=dict
    )
    """`.callprototype` by label: (returns, params)."""
    pragmas: tuple[tuple[str, int], ...] = ()
    """(text, index into body) of each `.pragma`; index 0 also for those of the header."""


@dataclass(frozen=True, slots=True)
class Module:
    """One PTX text."""

    version: str
    """`.version`, e.g. 8.0."""
    target: str
    """First `.target`: sm_90a."""
    address_size: int
    """Bits."""
    variables: Mapping[str, Variable]
    functions: Mapping[str, Function]
    text: str
    target_options: tuple[str, ...] = ()
    """What `.target` lists after the architecture: debug, texmode_unified."""

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels that have a body."""
        return tuple(f for f in self.functions.values() if f.is_entry and not f.is_declaration)

    def entry(self, name: str | None = None) -> Function:
        """The kernel called `name`, or the only one.

        Raises: LaunchError if there is none, or several and no name.
        """
        names = [f.name for f in self.entries]
        if name is None:
            if len(names) == 1:
                return self.entries[0]
            first = names[0] if names else "PTX with an .entry that has a body"
            raise LaunchError(
                f"the PTX must have one entry, or one must be named; it has {names or 'none'}; try "
                f"{first}"
            )
        found = self.functions.get(name)
        if found is None or not found.is_entry or found.is_declaration:
            raise LaunchError(f"no entry {name!r} in the PTX: {not_one_of('it', name, names)}")
        return found

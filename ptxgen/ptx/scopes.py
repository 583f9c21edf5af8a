"""Names of one function: nested scopes with unique names, so that a body can be one flat list."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ptxgen.ptx.lexer import Cursor
from ptxgen.ptx.module import Instruction, Operand, Register, Symbol, Vector

MAX_DEPTH = 200
"""Nested `{ }` scopes of one function."""
MAX_HIDDEN = 1 << 22
"""Names that register ranges of inner scopes may hide, all together."""

_RANGE_NAME = re.compile(r"(.*?)(0|[1-9]\d{0,8})", re.ASCII)
_INDEXED = r"envreg\d+|pm[0-7](?:_64)?|lanemask_(?:eq|le|lt|ge|gt)"
_SPECIAL = re.compile(
    r"%(?:(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)(?:\.[xyzw])?"
    r"|laneid|warpid|nwarpid|smid|nsmid|gridid|is_explicit_cluster|cluster_ctarank|cluster_nctarank"
    r"|clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|total_smem_size|aggr_smem_size|dynamic_smem_size"
    rf"|current_graph_exec|reserved_smem_offset_(?:begin|end|cap|[01])|{_INDEXED})"
)


@dataclass(slots=True)
class _Scope:
    declared: set[str] = field(default_factory=set)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Prefix of `%r<10>` -> (count, type)."""
    hidden: list[tuple[str, Operand | None]] = field(default_factory=list)
    """What each name that this scope binds meant outside."""
    labels: dict[str, str] = field(default_factory=dict)
    """Label as written -> unique name."""
    pending: dict[str, list[int]] = field(default_factory=dict)
    """Name that may be a label of this scope -> instructions that use it."""
    pending_targets: list[tuple[str, int, int]] = field(default_factory=list)
    """(label of the target list, index in it, line), likewise."""


class Names:
    """What the names of a function mean at the point that is being read."""

    def __init__(self, outer: dict[str, Operand], taken: Iterable[str]) -> None:
        self.visible: dict[str, Operand] = dict(outer)
        """Token -> operand. The parser also keeps literals here."""
        self.registers: dict[str, str] = {}
        """Unique name -> type of every register that is declared by name or used."""
        self._taken = set(taken)
        self._suffixes: dict[str, int] = {}
        self._scopes: list[_Scope] = []
        self._targets: dict[str, list[str]] = {}
        self._hidden_total = 0

    @property
    def targets(self) -> dict[str, tuple[str, ...]]:
        """Label -> targets of the `.branchtargets` and `.calltargets` lists."""
        return {label: tuple(names) for label, names in self._targets.items()}

    @property
    def depth(self) -> int:
        """Open scopes."""
        return len(self._scopes)

    def unique(self, name: str) -> str:
        """`name`, or with `$1`, `$2` where it is taken, which is now taken."""
        found = name
        while found in self._taken:
            self._suffixes[name] = self._suffixes.get(name, 0) + 1
            found = f"{name}${self._suffixes[name]}"
        self._taken.add(found)
        return found

    def open(self, cursor: Cursor) -> None:
        """Enter a scope.

        Raises: PtxSyntaxError if there are too many.
        """
        if len(self._scopes) >= MAX_DEPTH:
            raise cursor.error(f"expected at most {MAX_DEPTH} nested scopes")
        self._scopes.append(_Scope())

    def close(self, body: list[Instruction]) -> list[tuple[str, int]]:
        """Leave a scope and point `body` and target lists at its labels.

        Returns, for the outermost scope, what is no label: (name, line of its use).
        """
        scope = self._scopes.pop()
        for name, meaning in reversed(scope.hidden):
            if meaning is None:
                del self.visible[name]
            else:
                self.visible[name] = meaning
        for name, label in scope.labels.items():
            for index in scope.pending.pop(name, ()):
                if label != name:
                    body[index] = _with_label(body[index], name, label)
        left_targets: list[tuple[str, int, int]] = []
        for list_label, index, line in scope.pending_targets:
            targets = self._targets[list_label]
            if targets[index] in scope.labels:
                targets[index] = scope.labels[targets[index]]
            else:
                left_targets.append((list_label, index, line))
        if self._scopes:
            outer = self._scopes[-1]
            outer.pending = _merged(outer.pending, scope.pending)
            outer.pending_targets += left_targets
            return []
        unknown = [(name, body[min(uses)].line) for name, uses in scope.pending.items()]
        return unknown + [(self._targets[key][i], line) for key, i, line in left_targets]

    def bind(self, name: str, meaning: Operand, cursor: Cursor) -> None:
        """Give `name` a meaning in the innermost scope.

        Raises: PtxSyntaxError if the scope has it already.
        """
        scope = self._scopes[-1]
        if name in scope.declared:
            raise cursor.error(f"expected a new name, {name!r} is declared twice in one scope")
        scope.declared.add(name)
        self._bind(scope, name, meaning)

    def register(self, name: str, kind: str, lanes: int, cursor: Cursor) -> None:
        """Declare a register of type `kind`, or a vector of them."""
        unique = self.unique(name)
        if lanes == 1:
            self.registers[unique] = kind
            self.bind(name, Register(unique), cursor)
            return
        items = []
        for component in "xyzw"[:lanes]:
            item = Register(f"{unique}.{component}")
            self.registers[item.name] = kind
            self.bind(f"{name}.{component}", item, cursor)
            items.append(item)
        self.bind(name, Vector(tuple(items)), cursor)

    def register_range(self, prefix: str, count: int, kind: str, cursor: Cursor) -> None:
        """Declare `prefix<count>`. Its registers come into being where they are used."""
        scope = self._scopes[-1]
        if prefix in scope.ranges:
            raise cursor.error(f"expected a new name, {prefix}<> is declared twice in one scope")
        scope.ranges[prefix] = (count, kind)
        if len(self._scopes) == 1:
            return
        self._hidden_total += min(count, len(self.visible))
        if self._hidden_total > MAX_HIDDEN:
            raise cursor.error(f"expected at most {MAX_HIDDEN} registers in inner scopes")
        if count < len(self.visible):
            shadowed = [n for i in range(count) if (n := f"{prefix}{i}") in self.visible]
        else:
            shadowed = [n for n in self.visible if self._in_range(n, prefix, count)]
        for name in shadowed:
            if name not in scope.declared:
                scope.hidden.append((name, self.visible.pop(name)))

    def label(self, name: str, cursor: Cursor) -> str:
        """Declare a label. Returns its unique name.

        Raises: PtxSyntaxError if the scope has it already.
        """
        labels = self._scopes[-1].labels
        if name in labels:
            raise cursor.error(f"expected a new label, {name!r} is declared twice in one scope")
        labels[name] = self.unique(name)
        return labels[name]

    def pend(self, instruction: int, name: str) -> None:
        """Note that `instruction` uses `name`, which may be a label."""
        self._scopes[-1].pending.setdefault(name, []).append(instruction)

    def add_target(self, label: str, name: str, line: int) -> None:
        """Append `name` to the target list at `label`."""
        targets = self._targets.setdefault(label, [])
        self._scopes[-1].pending_targets.append((label, len(targets), line))
        targets.append(name)

    def find(self, name: str) -> Operand | None:
        """What `name` means: a register, a variable, or None for what may be a label."""
        found = self.visible.get(name)
        if found is None:
            found = self._from_range(name)
        if found is None and _SPECIAL.fullmatch(name):
            found = self.visible[name] = Register(name)
        return found

    def _bind(self, scope: _Scope, name: str, meaning: Operand) -> None:
        scope.hidden.append((name, self.visible.get(name)))
        self.visible[name] = meaning

    def _from_range(self, name: str) -> Register | None:
        match = _RANGE_NAME.fullmatch(name)
        if match is None:
            return None
        digits = len(name) - len(match[1])
        for scope in reversed(self._scopes):
            if not scope.ranges:
                continue
            for length in range(1, digits + 1):
                prefix = name[:-length]
                count, kind = scope.ranges.get(prefix, (0, ""))
                if self._in_range(name, prefix, count):
                    register = Register(self.unique(name))
                    self.registers[register.name] = kind
                    self._bind(scope, name, register)
                    return register
        return None

    @staticmethod
    def _in_range(name: str, prefix: str, count: int) -> bool:
        digits = name[len(prefix) :]
        return (
            name.startswith(prefix)
            and 0 < len(digits) < 10
            and digits.isdecimal()
            and (digits == "0" or digits[0] != "0")
            and int(digits) < count
        )


def _merged(one: dict[str, list[int]], other: dict[str, list[int]]) -> dict[str, list[int]]:
    """The union. The smaller goes into the larger, which keeps deep nests from costing more."""
    if len(one) < len(other):
        one, other = other, one
    for name, uses in other.items():
        found = one.get(name)
        if found is None:
            one[name] = uses
        else:
            longer, shorter = (found, uses) if len(found) >= len(uses) else (uses, found)
            longer.extend(shorter)
            one[name] = longer
    return one


def _with_label(instruction: Instruction, name: str, label: str) -> Instruction:
    """`instruction` with the symbol `name` replaced by `label`."""
    operands = tuple(
        Symbol(label) if isinstance(o, Symbol) and o.name == name else o
        for o in instruction.operands
    )
    return replace(instruction, operands=operands)

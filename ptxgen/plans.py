"""Plan: a Launch plus what a template prints. All arithmetic of a kernel happens in its plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptxgen.launch import Launch
from ptxgen.layout import SmemRegion


@dataclass(frozen=True)
class Barrier:
    """One kind of mbarrier of a kernel, for the protocol table in the rendered header."""

    name: str
    count: int
    """How many of them, one per stage."""
    arrivals: int
    """Arrivals that complete a phase."""
    tx_bytes: int
    """Transaction bytes of a phase; 0 = none."""
    who_arrives: str
    who_waits: str
    counts_at_most: bool = False
    """Whether some phases have fewer bytes."""


def product_text(scale: str, a: str = "A[M,K]", b: str = "B[N,K]^T") -> str:
    """The product that D takes before its epilogue, with its factors."""
    if scale == "none":
        return f"alpha * {a} {b}"
    if scale in ("tensor", "rowcol"):
        return f"alpha * scale_a * scale_b * {a} {b}"
    return f"alpha * (scale_a {a}) (scale_b {b}), {scale} scales"


def parts_text(parts: Mapping[str, str], used: Mapping[str, bool]) -> str:
    """The parts that a text consists of, each once, in the order of their roles.

    parts: role -> part. used: role -> whether the text has it; of roles left out, it has.
    """
    return ", ".join(dict.fromkeys(name for role, name in parts.items() if used.get(role, True)))


@dataclass(frozen=True)
class Plan:
    """What the template of `kernel` needs, and the launch of its text."""

    kernel: str
    """Template stem."""
    entry: str
    target: str
    version: str
    """`.version`: the lowest that serves the instructions used (a test keeps it so)."""
    launch: Launch
    smem_map: tuple[SmemRegion, ...]
    barriers: tuple[Barrier, ...]
    parts: dict[str, str]
    """Role -> stem of the file in templates/parts that plays it."""
    fields: dict[str, Any]
    """What only this kernel's template and its parts print: strings, integers, frozen
    dataclasses and lists of them."""

    @property
    def param_declarations(self) -> list[str]:
        """The entry's `.param` list, one line each, in the order of `launch.params`."""
        lines = []
        for param in self.launch.params:
            if param.kind == "tensor_map":
                lines.append(f".param .align 64 .b8 {param.name}[128]")
            else:
                kind = "u64" if param.kind == "pointer" else param.kind
                lines.append(f".param .{kind} {param.name}")
        return [f"{line}," for line in lines[:-1]] + lines[-1:]

    def __getattr__(self, name: str) -> Any:
        """A kernel's own field, read as an attribute."""
        if name.startswith("_") or name == "fields":
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"plan of {self.kernel} has no field {name!r}") from None

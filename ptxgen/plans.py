"""Plan: a Launch plus what a template prints. All arithmetic of a kernel happens in its plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptxgen.launch import Launch, Param
from ptxgen.layout import SmemRegion
from ptxgen.param_texts import param_text


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


def _declaration(param: Param) -> str:
    """The `.param` of one parameter, which has the kind's type but for addresses and maps."""
    if param.kind == "tensor_map":
        return f".param .align 64 .b8 {param.name}[128]"
    return f".param .{'u64' if param.kind == 'pointer' else param.kind} {param.name}"


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
        """The entry's `.param` list, one line each with what it is, in the order of
        `launch.params`.

        Raises: RenderError if a parameter has no text in param_texts.
        """
        params = self.launch.params
        declared = [_declaration(param) for param in params]
        declared = [f"{line}," for line in declared[:-1]] + declared[-1:]
        width = max(map(len, declared), default=0)
        return [
            f"{line:{width}}  // {param_text(self.kernel, param.name)}"
            for line, param in zip(declared, params, strict=True)
        ]

    def __getattr__(self, name: str) -> Any:
        """A kernel's own field, read as an attribute."""
        if name.startswith("_") or name == "fields":
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"plan of {self.kernel} has no field {name!r}") from None

"""Hand-written PTX for Tensor Core GEMMs: emit it, assemble it, emulate it, launch it.

The public names are loaded when they are first used, so that `import ptxgen` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxgen.assembler import Cubin, assemble
    from ptxgen.errors import PtxgenError
    from ptxgen.launch import Launch

__version__ = "0.1.0"

_HOMES = {
    "Cubin": "ptxgen.assembler",
    "Launch": "ptxgen.launch",
    "PtxgenError": "ptxgen.errors",
    "assemble": "ptxgen.assembler",
}
"""Public name -> the module that defines it."""

__all__ = ["Cubin", "Launch", "PtxgenError", "__version__", "assemble"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module.

    Raises: AttributeError if ptxgen has no such name.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ptxgen' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

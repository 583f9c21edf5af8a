"""Hand-written PTX for Tensor Core GEMMs: emit it, assemble it, emulate it, launch it.

The public names are loaded when they are first used, so that `import ptxgen` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxgen.assembler import Cubin, assemble
    from ptxgen.emission import emit, make_plan
    from ptxgen.errors import PtxgenError
    from ptxgen.kernels import KERNELS
    from ptxgen.launch import Launch
    from ptxgen.launcher.gemm_call import gemm
    from ptxgen.plans import Plan
    from ptxgen.problem import Gemm
    from ptxgen.renderer import Rendered, render

__version__ = "0.1.0"

_HOMES = {
    "Cubin": "ptxgen.assembler",
    "Gemm": "ptxgen.problem",
    "KERNELS": "ptxgen.kernels",
    "Launch": "ptxgen.launch",
    "Plan": "ptxgen.plans",
    "PtxgenError": "ptxgen.errors",
    "Rendered": "ptxgen.renderer",
    "assemble": "ptxgen.assembler",
    "emit": "ptxgen.emission",
    "gemm": "ptxgen.launcher.gemm_call",
    "make_plan": "ptxgen.emission",
    "render": "ptxgen.renderer",
}
"""Public name -> the module that defines it."""

__all__ = [
    "KERNELS",
    "Cubin",
    "Gemm",
    "Launch",
    "Plan",
    "PtxgenError",
    "Rendered",
    "__version__",
    "assemble",
    "emit",
    "gemm",
    "make_plan",
    "render",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module.

    Raises: AttributeError if ptxgen has no such name.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ptxgen' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

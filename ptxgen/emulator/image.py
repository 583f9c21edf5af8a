"""Image: a module prepared for one kernel: where its variables are, and its programs."""

import hashlib
from functools import lru_cache

from ptxgen.emulator.addresses import STATIC_SMEM_OFFSET
from ptxgen.emulator.faults import UNFORESEEN, unforeseen
from ptxgen.emulator.observer import Observer
from ptxgen.emulator.program import Program
from ptxgen.emulator.shared_layout import align, place_shared
from ptxgen.errors import UnknownInstructionError
from ptxgen.launch import Launch
from ptxgen.ptx.module import Function, Module, Symbol, Variable
from ptxgen.ptx.parser import parse

_MAX_IMAGES = 64
_images: dict[tuple[str, str, int, bool, int], "Image"] = {}


@lru_cache(maxsize=64)
def parse_cached(text: str) -> Module:
    """The parsed module of a text.

    Raises: PtxSyntaxError.
    """
    return parse(text)


def load_image(text: str, launch: Launch, observer: Observer | None = None) -> "Image":
    """The image of a text for a launch; kept, since compiled versions belong to it.

    Raises: PtxSyntaxError, EmulationError, LaunchError for an entry that is not there.
    """
    x, y, z = launch.cta_threads
    linear = x % 32 == 0 or (y == 1 and z == 1)
    digest = hashlib.sha256(text.encode()).hexdigest()
    level = 0 if observer is None else 2 if observer.wants_instructions else 1
    key = (digest, launch.entry, launch.dynamic_smem_bytes, linear, level)
    found = _images.get(key)
    if found is None:
        if len(_images) >= _MAX_IMAGES:
            del _images[next(iter(_images))]
        module = parse_cached(text)
        try:
            found = _images[key] = Image(module, launch, linear, level)
        except UNFORESEEN as error:
            raise unforeseen(error) from error
    return found


class Image:
    """One kernel of a module, laid out in memory."""

    def __init__(self, module: Module, launch: Launch, tid_is_linear: bool, level: int = 0) -> None:
        self.module = module
        self.entry = module.entry(launch.entry or None)
        self.native_fp8 = not module.target.startswith(("sm_90", "sm_10"))
        """mma.sync has FP8 in hardware."""
        self.tid_is_linear = tid_is_linear
        self.observed = level > 0
        """There is an observer."""
        self.observes_instructions = level > 1
        self.local: dict[str, int] = {}
        """Offset of every local variable in its function's frame, as function::name."""
        self.frame_bytes: dict[str, int] = {}
        """Local memory that one call of a function takes per lane."""
        scratch = "%reserved_smem_offset" in module.text
        self.smem_first = 0 if scratch else STATIC_SMEM_OFFSET
        """Lowest offset in shared memory that code may use."""
        layout = place_shared(module, self.entry, launch.dynamic_smem_bytes)
        self.shared = layout.offsets
        """Offset of every shared variable that has a place."""
        self.smem_end = layout.end
        for function in module.functions.values():
            self._place_local(function)
        self.local_bytes = max(sum(self.frame_bytes.values()) * 16, 4096)
        """Local memory of one thread: room for a few nested calls."""
        self.param_offsets, self.param_bytes = place_parameters(self.entry)
        self.function_ids = {name: i + 1 for i, name in enumerate(module.functions)}
        self._programs: dict[str, Program] = {}
        self.program = self.program_of(self.entry)

    def program_of(self, function: Function) -> Program:
        """The program of a function of the module."""
        found = self._programs.get(function.name)
        if found is None:
            found = self._programs[function.name] = Program(self, function)
        return found

    def variable(self, function: Function, name: str) -> Variable | None:
        """A variable by name as seen from a function."""
        return function.variables.get(name) or self.module.variables.get(name)

    def address_of(self, function: Function, symbol: Symbol) -> tuple[str, str]:
        """State space and address expression of a symbol in that space.

        Raises: UnknownInstructionError for a name that is not declared.
        """
        name = symbol.name
        for key in (f"{function.name}::{name}", name):
            if key in self.shared:
                return "shared", f"(F.cta.smem_base + {self.shared[key] + symbol.offset})"
        key = f"{function.name}::{name}"
        if key in self.local:
            return "local", f"(F.local_base + {self.local[key] + symbol.offset})"
        if function.is_entry and name in self.param_offsets:
            return "param", str(self.param_offsets[name] + symbol.offset)
        variable = self.variable(function, name)
        if variable is not None and variable.space in ("global", "const"):
            scope = key if name in function.variables else name
            return variable.space, f"(F.machine.symbols[{scope!r}] + {symbol.offset})"
        if name in self.module.functions:
            return "function", str(self.function_ids[name])
        raise UnknownInstructionError(f"{name} is not declared in {function.name} or its module")

    def symbol(self, function: Function, symbol: Symbol) -> str:
        """Expression of the address that `mov` gives for a symbol."""
        return self.address_of(function, symbol)[1]

    def _place_local(self, function: Function) -> None:
        offset = 0
        for variable in function.variables.values():
            if variable.space in ("local", "param"):
                offset = align(offset, max(variable.align, 1))
                self.local[f"{function.name}::{variable.name}"] = offset
                offset += max(variable.nbytes, 1)
        if not function.is_entry:
            for parameter in (*function.params, *function.returns):
                if not parameter.is_register:
                    offset = align(offset, max(parameter.align, 1))
                    self.local[f"{function.name}::{parameter.name}"] = offset
                    offset += max(parameter.nbytes, 1)
        self.frame_bytes[function.name] = align(offset, 16)


def place_parameters(entry: Function) -> tuple[dict[str, int], int]:
    """Offset of every kernel parameter, and the bytes of all."""
    offsets: dict[str, int] = {}
    end = 0
    for parameter in entry.params:
        end = align(end, max(parameter.align, 1))
        offsets[parameter.name] = end
        end += parameter.nbytes
    return offsets, end

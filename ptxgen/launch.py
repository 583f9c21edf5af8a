"""Launch: everything that a device needs beside the PTX text to run one kernel once.

The emulator and the GPU take a `Launch` and PTX text and nothing else, so a launch.json written
by hand runs anybody's PTX.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any, Protocol, get_args, get_origin, get_type_hints

from ptxgen.errors import LaunchError, not_one_of

SCHEMA = "ptxgen.launch/1"

TENSOR_MAP_TYPES: dict[str, int] = {
    "uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float16": 2, "float32": 4, "float64": 8, "bfloat16": 2, "float32_ftz": 4,
    "tfloat32": 4, "tfloat32_ftz": 4, "16u4_align8b": 0, "16u4_align16b": 0, "16u6_align16b": 0,
}  # fmt: skip
"""Element types of a tensor map (CUtensorMapDataType, lower case) -> bytes; 0 = packed sub-byte."""

SWIZZLES = ("none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")
"""CUtensorMapSwizzle, in the driver's order."""
INTERLEAVES = ("none", "16B", "32B")
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
OOB_FILLS = ("zero", "nan")
ROLES = ("in", "out", "inout", "workspace")
MAX_BUFFER_BYTES = 1 << 48
"""More than any GPU or host holds."""
MAX_GRID_CTAS = (2**31 - 1, 65535, 65535)
MAX_CTA_THREADS = 1024
MAX_CLUSTER_CTAS = 16
"""With non-portable sizes allowed; 8 without. Source of the limits: CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability"."""
PARAM_KINDS = ("u32", "u64", "s32", "s64", "f32", "pointer", "tensor_map", "bytes")


@dataclass(frozen=True)
class Buffer:
    """One allocation in global memory that the kernel reads or writes."""

    name: str
    nbytes: int
    """Size of the allocation in bytes."""
    role: str = "in"
    """in, out or inout: what the kernel does with it. workspace: it is the kernel's own, all zeros
    before the first launch, ready for the next one of the same entry after each, and not to be
    shared by launches that may overlap; devices bring it where the caller does not."""
    init: str = "poison"
    """What a runner that is given no data fills it with: poison (0xFF bytes), zeros,
    random:DTYPE:SEED (small normal numbers of that dtype), file:PATH (raw bytes), or hex:BYTES (the
    same, written out)."""

    def __post_init__(self) -> None:
        """Check size, role and what a workspace begins as.

        Raises: LaunchError.
        """
        if not 0 <= self.nbytes <= MAX_BUFFER_BYTES:
            hint = "try 0" if self.nbytes < 0 else "try a smaller problem"
            raise LaunchError(
                f"buffer {self.name}: nbytes must be in 0..{MAX_BUFFER_BYTES}, got {self.nbytes}; "
                f"{hint}"
            )
        if self.role not in ROLES:
            raise LaunchError(not_one_of(f"buffer {self.name}: role", self.role, ROLES))
        if self.role == "workspace" and self.init != "zeros":
            raise LaunchError(
                f"buffer {self.name}: a workspace must begin as zeros, got init={self.init!r}; try "
                "init='zeros'"
            )

    @property
    def is_result(self) -> bool:
        """Whether the caller wants what the kernel leaves in it."""
        return self.role in ("out", "inout")


@dataclass(frozen=True)
class TensorMap:
    """Arguments of cuTensorMapEncodeTiled, innermost dimension first.

    Source: CUDA driver API, "Tensor Map Object Management".
    """

    buffer: str | None
    """Name of the buffer that it views; None = 128 zero bytes, a map that is never used."""
    offset_bytes: int = 0
    """Where the view starts in the buffer."""
    element_type: str = "uint8"
    """Key of TENSOR_MAP_TYPES."""
    dims: tuple[int, ...] = ()
    """Elements in each dimension."""
    strides_bytes: tuple[int, ...] = ()
    """Byte strides of dimensions 1.. (rank - 1 values)."""
    box: tuple[int, ...] = ()
    """Elements of one box in each dimension."""
    element_strides: tuple[int, ...] = ()
    """Traversal strides; empty = all 1."""
    swizzle: str = "none"
    interleave: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "zero"


@dataclass(frozen=True)
class Param:
    """One kernel parameter, in the order of the entry's `.param` list."""

    name: str
    kind: str
    """Key of PARAM_KINDS. pointer: `value` is a buffer name, `offset_bytes` is added.
    tensor_map: `value` is a TensorMap (by value, 128 bytes). bytes: `value` is hexadecimal text."""
    value: Any
    offset_bytes: int = 0


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel."""

    entry: str
    """Name of the `.entry`."""
    grid_ctas: tuple[int, int, int]
    """Grid, counted in CTAs (never in clusters)."""
    cta_threads: tuple[int, int, int]
    """Threads of one CTA."""
    cluster_ctas: tuple[int, int, int] = (1, 1, 1)
    """CTAs of one cluster; divides the grid."""
    dynamic_smem_bytes: int = 0
    """Dynamic shared memory of one CTA."""
    params: tuple[Param, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    overlaps_previous: bool = False
    """Programmatic dependent launch: the kernel may start before the one before it on the stream
    ends, and waits for that by itself (griddepcontrol.wait)."""

    def __post_init__(self) -> None:
        """Check what can be checked without the PTX.

        Raises: LaunchError.
        """
        for what in ("grid_ctas", "cta_threads", "cluster_ctas"):
            value = getattr(self, what)
            if len(value) != 3 or any(v < 1 for v in value):
                raise LaunchError(f"{what} must be three integers >= 1, got {value}; try (1, 1, 1)")
        if any(v > most for v, most in zip(self.grid_ctas, MAX_GRID_CTAS, strict=True)):
            raise LaunchError(
                f"grid_ctas must be at most {MAX_GRID_CTAS}, got {self.grid_ctas}; try fewer"
            )
        if math.prod(self.cluster_ctas) > MAX_CLUSTER_CTAS:
            raise LaunchError(
                f"cluster_ctas must hold at most {MAX_CLUSTER_CTAS} CTAs, got "
                f"{self.cluster_ctas}; try fewer"
            )
        if math.prod(self.cta_threads) > MAX_CTA_THREADS:
            raise LaunchError(
                f"cta_threads must be at most {MAX_CTA_THREADS} in all, got {self.cta_threads}; "
                "try fewer"
            )
        if self.dynamic_smem_bytes < 0:
            raise LaunchError(
                f"dynamic_smem_bytes must be >= 0, got {self.dynamic_smem_bytes}; try 0"
            )
        pairs = tuple(zip(self.grid_ctas, self.cluster_ctas, strict=True))
        for grid, cluster in pairs:
            if grid % cluster:
                raise LaunchError(
                    f"grid_ctas={self.grid_ctas} must be a multiple of cluster_ctas="
                    f"{self.cluster_ctas} in every dimension; a grid is counted in CTAs; try "
                    f"{tuple(-(-g // c) * c for g, c in pairs)}"
                )
        names = [b.name for b in self.buffers]
        if len(set(names)) != len(names):
            raise LaunchError(f"buffer names must differ, got {names}; try one buffer for each")
        for param in self.params:
            if param.kind not in PARAM_KINDS:
                raise LaunchError(
                    not_one_of(f"parameter {param.name}: kind", param.kind, PARAM_KINDS)
                )
            used = param.value if param.kind == "pointer" else None
            if param.kind == "tensor_map":
                used = param.value.buffer
            if used is not None and used not in names:
                raise LaunchError(not_one_of(f"buffer of parameter {param.name}", used, names))

    def buffer(self, name: str) -> Buffer:
        """The buffer called `name`.

        Raises: LaunchError if there is none.
        """
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise LaunchError(not_one_of("buffer", name, [b.name for b in self.buffers]))

    @property
    def workspaces(self) -> tuple[Buffer, ...]:
        """The buffers that are the kernel's own."""
        return tuple(b for b in self.buffers if b.role == "workspace")

    def renamed(self, names: Mapping[str, str]) -> "Launch":
        """The same with buffers called otherwise: `names` holds old name -> new name. One kernel's
        output is the next one's input where both have one name.

        Raises: LaunchError if there is no such buffer, or two get one name.
        """
        for name in names:
            self.buffer(name)

        def of(value: Any) -> Any:
            if isinstance(value, TensorMap):
                return replace(value, buffer=names.get(value.buffer or "", value.buffer))
            return names.get(value, value) if isinstance(value, str) else value

        return replace(
            self,
            params=tuple(
                replace(p, value=of(p.value)) if p.kind in ("pointer", "tensor_map") else p
                for p in self.params
            ),
            buffers=tuple(replace(b, name=of(b.name)) for b in self.buffers),
        )

    def with_contents(self, contents: Mapping[str, bytes]) -> "Launch":
        """The same where buffers begin as `contents` says: name -> all of its bytes.

        Raises: LaunchError if there is no such buffer.
        """
        for name in contents:
            self.buffer(name)
        return replace(
            self,
            buffers=tuple(
                replace(b, init=f"hex:{contents[b.name].hex()}") if b.name in contents else b
                for b in self.buffers
            ),
        )

    def to_json(self) -> str:
        """The launch as JSON text (schema `ptxgen.launch/1`)."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Launch":
        """Read what `to_json` wrote, or a person.

        Raises: LaunchError naming the key that is missing, unknown or of the wrong kind.
        """
        try:
            data = json.loads(text)
        except (json.JSONDecodeError, TypeError) as error:
            raise LaunchError(
                f"launch description is not JSON: {error}; try check FILE "
                "--launch-template, which prints one to fill in"
            ) from error
        if not isinstance(data, dict):
            raise LaunchError(
                f"launch description must be a JSON object, got {type(data).__name__}; try "
                "check FILE --launch-template, which prints one to fill in"
            )
        schema = data.pop("schema", SCHEMA)
        if schema != SCHEMA:
            raise LaunchError(f"launch schema must be {SCHEMA!r}, got {schema!r}; try {SCHEMA!r}")
        params = []
        for index, item in enumerate(_items(data, "params")):
            where = f"params[{index}]"
            if isinstance(item, dict) and item.get("kind") == "tensor_map":
                described = _build(TensorMap, item.get("value"), f"{where}: tensor map")
                item = {**item, "value": described}
            params.append(_build(Param, item, where))
        buffers = [
            _build(Buffer, item, f"buffers[{index}]")
            for index, item in enumerate(_items(data, "buffers"))
        ]
        launch = _build(cls, {**data, "params": params, "buffers": buffers}, "launch")
        assert isinstance(launch, cls)
        return launch


def _items(data: dict[str, Any], key: str) -> list[Any]:
    items = data.get(key, [])
    if not isinstance(items, list):
        raise LaunchError(f"{key} must be a list, got {type(items).__name__}; try []")
    return items


def _build(kind: type, data: Any, where: str) -> Any:
    """Make the dataclass `kind` from a JSON object, lists becoming tuples."""
    if not isinstance(data, dict):
        raise LaunchError(f"{where}: must be an object, got {type(data).__name__}; try {{...}}")
    hints = get_type_hints(kind)
    known = set(hints)
    unknown = sorted(set(data) - known)
    if unknown:
        raise LaunchError(not_one_of(f"{where}: each key", unknown[0], sorted(known)))
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in data]
    if missing:
        raise LaunchError(
            f"{where}: key {missing[0]!r} is missing; try check FILE --launch-template, which "
            "prints a launch description to fill in"
        )
    for key, value in data.items():
        if not _is_of(value, hints[key]):
            must = _MUST.get(hints[key], "a list of integers")
            raise LaunchError(f"{where}: {key} must be {must}, got {value!r}; try {_TRY[must]}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})


_MUST = {str: "text", int: "an integer", bool: "true or false", str | None: "text or null"}
_TRY = {"text": '""', "an integer": "0", "true or false": "false", "text or null": "null",
        "a list of integers": "[1, 1, 1]"}  # fmt: skip


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value from JSON is of the type of a field."""
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if get_origin(hint) is tuple:
        kinds = set(get_args(hint)) - {Ellipsis}
        return isinstance(value, list) and all(_is_of(x, kind) for x in value for kind in kinds)
    return hint is Any or isinstance(value, hint)


class Device(Protocol):
    """Something that runs a `Launch`: the emulator or a GPU. One test body runs on both."""

    name: str
    """emulator, or the GPU's name."""

    def alloc(self, nbytes: int) -> int:
        """Address of a new allocation of at least `nbytes` bytes, 256-byte aligned."""

    def free(self, address: int) -> None:
        """Give an allocation back."""

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Copy host bytes to `address`."""

    def read(self, address: int, nbytes: int) -> bytes:
        """Copy `nbytes` bytes at `address` to the host, after all launches have finished."""

    def launch(self, launch: Launch, ptx: str, addresses: Mapping[str, int]) -> None:
        """Run `launch` of the entry in `ptx`; `addresses` holds one address per buffer name.
        Workspaces may be left out; the launch then has its own.

        Raises: LaunchError, PtxError, EmulationError, DriverError.
        """

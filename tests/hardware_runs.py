"""Cases that an H200 and the emulator must answer with the same bytes, and the H200's record.

tests/hardware_digests.json holds a digest of each part of the output, written down from an H200.
`python tests/hardware_runs.py` writes the emulator's digests: they may be committed once the tests
marked `gpu` have passed with them on an H200, and not before.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator import EmulatorDevice, Options
from ptxgen.launch import Device, Launch

DIGESTS = Path(__file__).with_name("hardware_digests.json")
WAIT_LIMIT_NS = 2_000_000_000
"""Time after which a wait of a kernel on the GPU traps instead of hanging it."""


@dataclass(frozen=True)
class Part:
    """The output of one instruction form."""

    name: str
    first: int
    """Byte in the output buffers, one behind the other."""
    nbytes: int
    num_cases: int = 1
    """Results that are compared: lanes, elements, or one per run."""


@dataclass(frozen=True)
class Case:
    """One launch; every byte of its buffers that are not inputs is compared."""

    name: str
    ptx: str
    launch: Launch
    data: Mapping[str, NDArray[Any]]
    """Contents of buffers by name; the others start as 0xFF bytes."""
    parts: tuple[Part, ...] = field(default=())
    """Forms whose outputs are compared one by one; empty = the whole is one form."""

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts, at least one."""
        nbytes = sum(b.nbytes for b in self.launch.buffers if b.role != "in")
        return self.parts or (Part(self.name, 0, nbytes, nbytes // 4),)


def run_case(device: Device, case: Case) -> bytes:
    """The output buffers after one launch, one behind the other."""
    addresses = {}
    for buffer in case.launch.buffers:
        raw = np.full(buffer.nbytes, 0xFF, np.uint8)
        given = case.data.get(buffer.name)
        if given is not None:
            found = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
            raw[: found.size] = found
        addresses[buffer.name] = device.alloc(buffer.nbytes)
        device.write(addresses[buffer.name], raw.tobytes())
    device.launch(case.launch, case.ptx, addresses)
    outputs = [
        device.read(addresses[b.name], b.nbytes) for b in case.launch.buffers if b.role != "in"
    ]
    for address in addresses.values():
        device.free(address)
    return b"".join(outputs)


def exact_emulator() -> EmulatorDevice:
    """The emulator with the Tensor Core's own arithmetic."""
    return EmulatorDevice(Options(exact=True))


def digest(data: bytes) -> str:
    """Twelve hexadecimal digits that stand for the bytes."""
    return hashlib.sha256(data).hexdigest()[:12]


@cache
def recorded() -> dict[str, str]:
    """{case: the digests of its parts in order} as an H200 wrote them."""
    found: dict[str, str] = json.loads(DIGESTS.read_text(encoding="utf-8"))
    return found


def differences(case: Case, output: bytes, device: Device) -> list[str]:
    """One line for each part that differs from what an H200 wrote; empty if none does."""
    want = recorded().get(case.name, "").split()
    wrong = []
    for part, known in zip_longest(case.all_parts, want):
        assert part is not None, f"{case.name}: the record has more parts than the case"
        got = output[part.first : part.first + part.nbytes]
        if digest(got) != known:
            wrong.append((part, got))
    if not wrong:
        return []
    reference = run_case(exact_emulator(), case) if device.name != "emulator" else b""
    return [_difference(part, got, reference) for part, got in wrong]


def _difference(part: Part, got: bytes, reference: bytes) -> str:
    """What differs: against the emulator's bytes where they are known."""
    if not reference:
        return f"{part.name}: not the bytes that an H200 wrote"
    want = reference[part.first : part.first + part.nbytes]
    width = 8 if part.num_cases and part.nbytes // part.num_cases == 8 else 4
    a, b = (np.frombuffer(x[: len(x) // width * width], f"<u{width}") for x in (got, want))
    at = np.flatnonzero(a != b)
    shown = [f"[{i}] {a[i]:#x} emulator {b[i]:#x}" for i in at[:3]]
    return f"{part.name}: {len(at)}/{len(a)} differ: {'; '.join(shown)}"


def check(device: Device, case: Case) -> None:
    """Run the case, in the exact mode where that is a choice, and compare with the record."""
    if device.name == "emulator":
        device = exact_emulator()
    wrong = differences(case, run_case(device, case), device)
    assert not wrong, "\n".join(wrong[:40])


def check_with_emulator(device: Device, case: Case) -> None:
    """Run a case that there is no record of on both."""
    output, reference = run_case(device, case), run_case(exact_emulator(), case)
    wrong = []
    for part in case.all_parts:
        got = output[part.first : part.first + part.nbytes]
        if got != reference[part.first : part.first + part.nbytes]:
            wrong.append(_difference(part, got, reference))
    assert not wrong, "\n".join(wrong[:40])


def all_cases() -> Iterator[Case]:
    """The cases of all test_hardware files."""
    import hardware_catalog

    yield from hardware_catalog.cases()


def main() -> None:
    """Write the emulator's digests of all cases."""
    found: dict[str, str] = {}
    num_forms = num_cases = 0
    for case in all_cases():
        output = run_case(exact_emulator(), case)
        parts = case.all_parts
        found[case.name] = " ".join(digest(output[p.first : p.first + p.nbytes]) for p in parts)
        num_forms += len(parts)
        num_cases += sum(p.num_cases for p in parts)
    DIGESTS.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(found)} kernels, {num_forms} forms, {num_cases} results\n")


if __name__ == "__main__":
    main()

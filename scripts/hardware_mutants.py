"""Does a GPU show the failure of each class of mutants? Weakened kernels, run with random delays.

Run from a checkout on a machine with an sm_90 GPU: python scripts/hardware_mutants.py
Every mutant has a process of its own. A watchdog kernel beside it traps when %globaltimer passes a
limit, which ends whatever waits for ever. Prints a table of the classes, and one JSON object.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from golden_kernels import golden_kernels  # noqa: E402

from ptxgen.emission import make_plan  # noqa: E402
from ptxgen.errors import AssemblyError, DriverError, PtxgenError  # noqa: E402
from ptxgen.launch import Buffer, Launch, Param  # noqa: E402
from ptxgen.launcher import GpuDevice, PreparedCall  # noqa: E402
from ptxgen.launcher.timing import new_stream  # noqa: E402
from ptxgen.mutation import Mutant, mutants, statements  # noqa: E402
from ptxgen.operands import Operands, make_operands  # noqa: E402
from ptxgen.problem import Gemm  # noqa: E402
from ptxgen.ptx.parser import parse  # noqa: E402
from ptxgen.quantize import numpy_dtype  # noqa: E402
from ptxgen.trial import run_operands  # noqa: E402

KERNELS = ("gemm_sm90_fast", "gemm_sm90_cluster", "gemm_sm90_promoted", "gemm_sm90_deferred",
           "gemm_sm90_block", "gemm_mma")  # fmt: skip
SIZE = 1024
"""M, N and K: two waves of tiles, eight and more k-tiles, so that rings wrap."""
LIMIT_NS = 1_500_000_000
"""After which the watchdog ends the context."""
NUM_CTAS = 16
"""Persistent CTAs: each works on many tiles."""
NUM_DELAYS = 8
"""Places of a text where some warps sleep, near the mutant and anywhere."""
NEAR = 15
"""Instructions around a mutant that are near it."""
WATCHDOG = """.version 7.8
.target sm_80
.address_size 64
.visible .entry watchdog(.param .u64 flag)
{
.reg .b64 %flag, %start, %now;
.reg .b32 %done;
.reg .pred %p;
ld.param.u64 %flag, [flag];
mov.u64 %start, %globaltimer;
AGAIN:
ld.volatile.global.u32 %done, [%flag];
setp.ne.u32 %p, %done, 0;
@%p ret;
nanosleep.u32 2000;
mov.u64 %now, %globaltimer;
sub.u64 %now, %now, %start;
setp.lt.u64 %p, %now, LIMIT;
@%p bra AGAIN;
trap;
}
""".replace("LIMIT", str(LIMIT_NS))


WATCH = Launch(
    "watchdog", (1, 1, 1), (1, 1, 1), params=(Param("flag", "pointer", "flag"),),
    buffers=(Buffer("flag", 4),),
)  # fmt: skip


class WatchedDevice:
    """A GPU on which every launch has a watchdog."""

    def __init__(self, stream: int) -> None:
        self.gpu = GpuDevice.get()
        self.name = self.gpu.name
        self.stream = stream
        """Of the watchdog; it does not wait for the default stream."""
        self.flag = self.gpu.alloc(4)
        self.watchdog = PreparedCall(self.gpu, WATCH, WATCHDOG)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.gpu, name)

    def launch(self, launch: Launch, ptx: str, addresses: Mapping[str, int]) -> None:
        """As GpuDevice.launch; the watchdog sees the end by a word that is set behind it."""
        call = PreparedCall(self.gpu, launch, ptx)
        self.gpu.fill(self.flag, 4, 0)
        self.gpu.synchronize()
        self.watchdog({"flag": self.flag}, self.stream)
        call(addresses)
        self.gpu.fill(self.flag, 4, 1)


def class_of(mutant: Mutant) -> str:
    """Operator and kind of instruction."""
    opcode = re.sub(r"^@\S+\s+", "", mutant.instruction).split()[0].rstrip(";")
    family = re.match(r"(?:[a-z]+\.)*(?:[a-z_]+)(?:\.expect_tx|\.wait_group(?:\.read)?)?", opcode)
    return f"{family[0] if family else opcode}: {mutant.operator}"


def delayed(text: str, seed: int, index: int) -> str:
    """The text with sleeps of some warps, half of them near instruction `index`; seed 0: none."""
    if seed == 0:
        return text
    rng = random.Random(seed)  # noqa: S311
    found = [s.start for s in statements(text, parse(text).entry())]
    near = found[max(index - NEAR, 0) : index + NEAR] if index >= 0 else found
    places = {*rng.sample(found, NUM_DELAYS // 2), *rng.sample(near, NUM_DELAYS // 2)}
    for start in sorted(places, reverse=True):
        mask = rng.choice((1, 3, 7))
        sleep = (
            "{ .reg .u32 %jitter, %other; .reg .pred %sleeps; mov.u32 %jitter, %warpid; "
            f"mov.u32 %other, %ctaid.x; mad.lo.u32 %jitter, %other, {rng.randrange(8)}, %jitter; "
            f"and.b32 %jitter, %jitter, {mask}; setp.eq.u32 %sleeps, %jitter, "
            f"{rng.randrange(mask + 1)}; "
            f"@%sleeps nanosleep.u32 {rng.choice((200, 2000, 20000, 100000))}; }} "
        )
        text = text[:start] + sleep + text[start:]
    return text


def outcome_of(name: str, index: int, num_seeds: int) -> str:
    """Run one mutant (-1: the original) until a failure shows.

    The answer: none, wrong result, never ends, fault, not assembled.
    """
    golden = golden_kernels()[name]
    problem = replace(golden.gemm, m=SIZE, n=SIZE, k=SIZE)
    plan = make_plan(problem, golden.config, num_sms=NUM_CTAS)
    # .relaxed of mbarrier operations needs 8.6
    text = re.sub(r"\.version 8\.[0-5]", ".version 8.6", golden.text())
    place = -1
    if index >= 0:
        mutant = mutants(text)[index]
        text, place = mutant.apply(text), mutant.index
    operands = make_operands(problem, "integers")
    want = problem.reference(operands.a, operands.b, operands.scale_a, operands.scale_b)
    want = want.astype(numpy_dtype(problem.d))
    with new_stream(GpuDevice.get()) as stream:
        return _first_failure(problem, operands, plan.launch, text, place, want, stream,
                              num_seeds)  # fmt: skip


def _first_failure(
    problem: Gemm, operands: Operands, launch: Launch, text: str, place: int, want: Any,
    stream: int, num_seeds: int,
) -> str:  # fmt: skip
    device: Any = WatchedDevice(stream)
    for seed in range(num_seeds):
        changed = delayed(text, seed, place)
        began = time.monotonic()
        try:
            run = run_operands(problem, operands, launch, changed, device, launches=3)
        except AssemblyError as error:
            return f"not assembled: {str(error).splitlines()[0][:60]}"
        except DriverError as error:
            code = re.search(r"\((\d+)\)", str(error))
            slow = time.monotonic() - began > 0.9 * LIMIT_NS * 1e-9
            return "never ends" if slow else f"fault {code[1] if code else '?'}"
        wrong = int((run.d != want).sum())
        if wrong or run.stray_bytes:
            return f"wrong result ({wrong} of {want.size}, seed {seed})"
    return "none"


def in_a_process(name: str, index: int, num_seeds: int) -> str:
    """`outcome_of` in a process of its own."""
    command = [sys.executable, __file__, "--one", name, str(index), "--seeds", str(num_seeds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return "never ends"
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else f"died: {done.stderr.strip()[-80:]}"


def main() -> int:
    """Run the mutants of every class; the exit status is 1 if an original fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--per-class", type=int, default=4, metavar="N")
    parser.add_argument("--seeds", type=int, default=5, metavar="N")
    parser.add_argument("--one", nargs=2, metavar=("KERNEL", "INDEX"))
    chosen = parser.parse_args()
    if chosen.one:
        try:
            answer = outcome_of(chosen.one[0], int(chosen.one[1]), chosen.seeds)
        except PtxgenError as error:
            answer = f"error: {str(error).splitlines()[0][:80]}"
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
        return 0
    classes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name in KERNELS:
        for index, mutant in enumerate(mutants(golden_kernels()[name].text())):
            classes[class_of(mutant)].append((name, index))
    tasks: dict[tuple[str, int], str] = {(name, -1): "original" for name in KERNELS}
    for title, members in sorted(classes.items()):
        step = max(len(members) // chosen.per_class, 1)
        for member in members[::step][: chosen.per_class]:
            tasks[member] = title
    with ThreadPoolExecutor(12) as running:
        outcomes = list(running.map(lambda t: in_a_process(*t, chosen.seeds), tasks))
    by_class: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for title, outcome in zip(tasks.values(), outcomes, strict=True):
        by_class[title][re.sub(r" \(.*|:.*", "", outcome)] += 1
    for title in sorted(by_class):
        counts = ", ".join(f"{n} {what}" for what, n in sorted(by_class[title].items()))
        sys.stdout.write(f"| {title} | {counts} |\n")
    shown = sum(o.startswith(("wrong", "never", "fault")) for o in outcomes)
    sys.stdout.write(json.dumps({"mutants": len(tasks) - len(KERNELS), "shown": shown}) + "\n")
    return int(any(o != "none" for t, o in zip(tasks, outcomes, strict=True) if t[1] < 0))


if __name__ == "__main__":
    sys.exit(main())

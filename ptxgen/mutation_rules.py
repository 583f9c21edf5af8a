"""Rules by which a mutant is equivalent to its original: no schedule on any hardware tells the two
apart. Each has a name, a reason, and a decision that is made on the text and on who arrived and
waited where. Source of the reasons: PTX ISA 9.0, the sections of the instructions.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ptxgen.emulator.flow import reads, writes
from ptxgen.mutation import Mutant
from ptxgen.mutation_operators import BARRIERS
from ptxgen.mutation_paths import Paths
from ptxgen.ptx.module import Function, Immediate, Instruction, Register, Vector

_ALIGNED = (
    "bar.sync",
    "bar.arrive",
    "bar.red",
    "barrier.cluster.arrive",
    "barrier.cta.sync.aligned",
)
_LANE_SYNCS = ("bar.warp.sync", *_ALIGNED)
_TENSOR_WORK = ("tcgen05.mma", "tcgen05.cp", "tcgen05.shift", "tcgen05.ld", "tcgen05.st")
_BEFORE, _AFTER = "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"


@dataclass(frozen=True)
class Facts:
    """Who arrived and waited where, in runs that execute all of a kernel."""

    tensor_waits: Collection[int]
    """PTX lines of mbarrier waits that handed tcgen05 work of another thread over."""
    own_arrivals: Collection[int]
    """PTX lines of arrivals on mbarriers that nobody but the arriving thread waits on."""


@dataclass(frozen=True)
class Place:
    """A mutant in its kernel."""

    paths: Paths
    mutant: Mutant
    facts: Facts

    @property
    def instruction(self) -> Instruction:
        """What was changed."""
        return self.paths.body[self.mutant.index]


@dataclass(frozen=True)
class Rule:
    """One reason why a mutant may go unnoticed."""

    name: str
    reason: str
    applies: Callable[[Place], bool]


def rule_of(paths: Paths, mutant: Mutant, facts: Facts) -> str:
    """Name of the first rule that makes a mutant equivalent, or ""."""
    place = Place(paths, mutant, facts)
    return next((rule.name for rule in RULES if rule.applies(place)), "")


def paths_of(function: Function) -> Paths:
    """The paths that `rule_of` looks at."""
    return Paths(function)


def _guard_never_holds(place: Place) -> bool:
    guard = place.instruction.guard
    if guard is None:
        return False
    register, negated = guard
    return place.paths.constant(place.mutant.index, register) is negated


def _nothing_to_wait_for(place: Place) -> bool:
    opcode = place.instruction.opcode
    prefix, found, _ = opcode.partition(".wait_group")
    if not found or place.mutant.operator not in ("deleted", "one group more in flight"):
        return False
    allowed = place.instruction.operands[0]
    most = place.paths.most_groups(prefix)[place.mutant.index]
    return isinstance(allowed, Immediate) and most <= int(allowed.value)


def _registers_untouched(place: Place) -> bool:
    """No instruction between the wgmmas around a wgmma.fence touches a register of theirs."""
    if not place.instruction.opcode.startswith("wgmma.fence"):
        return False
    at = place.mutant.index
    following, _ = place.paths.forwards(at, lambda i: i.opcode.startswith("wgmma.fence"))
    later = [i for i in following if i.opcode.startswith("wgmma.mma_async")]
    preceding, from_entry = place.paths.backwards(at, _is_wgmma)
    earlier = [i for i in preceding if i.opcode.startswith("wgmma.mma_async")]
    fenced = any(i.opcode.startswith("wgmma.fence") for i in preceding)
    shapes = {i.modifiers for i in (*earlier, *later)}
    if from_entry or fenced or not earlier or len(shapes) != 1:
        return False
    registers = {name for i in later for name in _wgmma_registers(i)}
    others = (i for i in preceding if not _is_wgmma(i))
    return all(registers.isdisjoint((*reads(i), *writes(i))) for i in others)


def _is_wgmma(instruction: Instruction) -> bool:
    return instruction.opcode.startswith(("wgmma.mma_async", "wgmma.fence"))


def _wgmma_registers(instruction: Instruction) -> list[str]:
    vectors = [o for o in instruction.operands if isinstance(o, Vector)]
    return [item.name for v in vectors for item in v.items if isinstance(item, Register)]


def _barrier_follows(place: Place) -> bool:
    """A bar.warp.sync before an aligned barrier, with nothing but arithmetic between them."""
    if not place.instruction.opcode.startswith("bar.warp.sync"):
        return False
    following, to_exit = place.paths.forwards(
        place.mutant.index, lambda i: i.opcode.startswith(_ALIGNED)
    )
    return not to_exit and not any(_accesses(i) for i in following)


def _lanes_did_nothing(place: Place) -> bool:
    """A bar.warp.sync behind another synchronisation of the lanes, with no access in between."""
    if not place.instruction.opcode.startswith("bar.warp.sync"):
        return False
    preceding, from_entry = place.paths.backwards(
        place.mutant.index, lambda i: i.opcode.startswith(_LANE_SYNCS)
    )
    return not from_entry and not any(_accesses(i) for i in preceding)


def _only_exit_follows(place: Place) -> bool:
    """A bar.sync at a barrier of its own, behind which a thread does nothing but end."""
    this = place.instruction
    if not this.opcode.startswith("bar.sync") or place.mutant.operator != "deleted":
        return False
    following, _ = place.paths.forwards(place.mutant.index, lambda i: False)
    others = (i for i in place.paths.body if i is not this and i.name in ("bar", "barrier"))
    return all(i.name in ("bra", "ret", "exit") for i in following) and not any(
        i.operands[:1] == this.operands[:1] for i in others
    )


def _accesses(instruction: Instruction) -> bool:
    """Whether lanes do what others must be told of. Bulk copies are asynchronous: their issue
    orders nothing, waiting for them does."""
    opcode = instruction.opcode
    if opcode.startswith("cp."):
        return "wait" in opcode or "bulk" not in opcode
    if opcode.startswith("mbarrier"):
        return "_wait" not in opcode
    if instruction.name == "ld":
        return "param" not in instruction.modifiers
    names = ("st", "atom", "red", "ldmatrix", "stmatrix", "tensormap", "fence", "membar")
    return instruction.name in names


def _init_fence_publishes(place: Place) -> bool:
    """A relaxed cluster arrive where only mbarrier.init happened before, followed by its fence."""
    if place.mutant.operator != "release -> relaxed":
        return False
    if not place.instruction.opcode.startswith("barrier.cluster.arrive"):
        return False
    preceding, _ = place.paths.backwards(place.mutant.index, lambda i: False)
    fence = [i for i in preceding if i.opcode.startswith("fence.mbarrier_init")]
    others = [i for i in preceding if _accesses(i) and i not in fence]
    return bool(fence) and all(
        i.opcode.startswith("mbarrier.init") and i.line < fence[-1].line for i in others
    )


def _nothing_of_its_own(place: Place) -> bool:
    """A relaxed arrive.expect_tx of a thread that made no access since it last waited."""
    if (
        place.mutant.operator != "release -> relaxed"
        or ".expect_tx" not in place.instruction.opcode
    ):
        return False
    preceding, from_entry = place.paths.backwards(
        place.mutant.index, lambda i: i.name == "mbarrier" and "_wait" in i.opcode
    )
    announcements = ".expect_tx"
    return not from_entry and not any(
        _accesses(i) and announcements not in i.opcode for i in preceding
    )


def _waits_itself(place: Place) -> bool:
    """What a thread arrives at is waited for by itself alone, in the order of its program."""
    if place.mutant.operator == "release -> relaxed":
        return place.instruction.line in place.facts.own_arrivals
    if place.mutant.operator == "moved past the barrier":
        later = place.paths.body[place.mutant.index + 1 :]
        barrier = next(i for i in later if i.opcode.startswith(BARRIERS))
        return barrier.line in place.facts.own_arrivals
    return False


def _no_tensor_work_before(place: Place) -> bool:
    """fence::before_thread_sync with no tcgen05 work since the last one, or since a commit."""
    if place.instruction.opcode != _BEFORE:
        return False
    preceding, _ = place.paths.backwards(
        place.mutant.index, lambda i: i.opcode == _BEFORE or i.opcode.startswith("tcgen05.commit")
    )
    return not any(i.opcode.startswith(_TENSOR_WORK) for i in preceding)


def _no_tensor_work_around(place: Place) -> bool:
    """A tcgen05 fence with no tcgen05 work before it in the kernel, or none behind it."""
    if place.instruction.opcode not in (_BEFORE, _AFTER):
        return False
    preceding, _ = place.paths.backwards(place.mutant.index, lambda i: False)
    following, _ = place.paths.forwards(place.mutant.index, lambda i: False)
    return not all(
        any(i.opcode.startswith(_TENSOR_WORK) for i in some) for some in (preceding, following)
    )


def _another_fence_follows(place: Place) -> bool:
    """fence::after_thread_sync before another one, with no tcgen05 work between them."""
    if place.instruction.opcode != _AFTER:
        return False
    following, to_exit = place.paths.forwards(place.mutant.index, lambda i: i.opcode == _AFTER)
    return not to_exit and not any(i.opcode.startswith(_TENSOR_WORK) for i in following)


def _wait_hands_over_no_tensor_work(place: Place) -> bool:
    """fence::after_thread_sync where nothing since the last one could hand tcgen05 work over."""
    if place.instruction.opcode != _AFTER:
        return False
    preceding, from_entry = place.paths.backwards(place.mutant.index, lambda i: i.opcode == _AFTER)
    return not from_entry and not any(
        i.opcode.startswith(("bar.sync", "barrier.cluster.wait"))
        or (i.name == "mbarrier" and "_wait" in i.opcode and i.line in place.facts.tensor_waits)
        for i in preceding
    )


RULES = (
    Rule("guard-never-holds", "the guard is false on every path, so that nothing is executed",
         _guard_never_holds),
    Rule("nothing-to-wait-for", "no path has more groups in flight than the wait allows",
         _nothing_to_wait_for),
    Rule("registers-untouched",
         "wgmma.fence orders registers, and since the wgmma before none of them was touched",
         _registers_untouched),
    Rule("barrier-follows",
         "the warp executes the aligned barrier that follows as one, behind all of its lanes",
         _barrier_follows),
    Rule("lanes-did-nothing", "since the lanes last met, none made an access that others see",
         _lanes_did_nothing),
    Rule("only-exit-follows",
         "no other instruction meets at the barrier, and a thread does nothing behind it but end",
         _only_exit_follows),
    Rule("init-fence-publishes",
         "only inits of mbarriers precede, and fence.mbarrier_init publishes them with any arrive",
         _init_fence_publishes),
    Rule("nothing-of-its-own",
         "the thread made no access since it last waited, so its arrival has nothing to publish",
         _nothing_of_its_own),
    Rule("waits-itself", "nobody but the thread that arrives waits on the mbarrier", _waits_itself),
    Rule("no-tensor-work-before", "there is no tcgen05 work that the fence could put before a sync",
         _no_tensor_work_before),
    Rule("no-tensor-work-around", "there is no tcgen05 work on one side of the fence",
         _no_tensor_work_around),
    Rule("another-fence-follows", "a second fence follows before the next tcgen05 work",
         _another_fence_follows),
    Rule("wait-hands-over-no-tensor-work",
         "whoever arrives where was waited has done no tcgen05 work, and another fence precedes",
         _wait_hands_over_no_tensor_work),
)  # fmt: skip
"""In the order in which they are tried."""

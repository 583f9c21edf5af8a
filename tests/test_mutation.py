"""Mutants, what becomes of them, and the rules by which some are equivalent."""

from concurrent.futures import Executor, ThreadPoolExecutor

import pytest
from golden_kernels import golden_kernels
from litmus_cases import Litmus, cases

from ptxgen.errors import HazardError
from ptxgen.executors import executor_of
from ptxgen.mutation import Mutant, mutants
from ptxgen.mutation_operators import weakened
from ptxgen.mutation_paths import VARIES, Paths
from ptxgen.mutation_rules import RULES, Facts, Place
from ptxgen.mutation_score import MIN_SCORE, Scenario, Score, score
from ptxgen.ptx.parser import parse

GOLDEN = golden_kernels()
MAX_EQUIVALENT = 0.1


def litmus(name: str) -> Litmus:
    return next(c for c in cases() if c.name == name)


# Mutants


@pytest.mark.parametrize("name", GOLDEN)
def test_every_mutant_is_another_ptx_text_with_the_same_lines(name: str) -> None:
    text = GOLDEN[name].text()
    found = mutants(text)
    assert len({m.name for m in found}) == len(found)
    for mutant in found:
        changed = mutant.apply(text)
        assert changed != text
        old, new = text.splitlines(), changed.splitlines()
        assert len(old) == len(new)
        assert old[mutant.line - 1] != new[mutant.line - 1]
        parse(changed)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_synchronising_instruction_has_a_mutant(name: str) -> None:
    text = GOLDEN[name].text()
    touched = {m.index for m in mutants(text)}
    body = parse(text).entry().body
    wanted = {
        index
        for index, i in enumerate(body)
        if i.name in ("bar", "barrier", "mbarrier", "fence")
        or "commit_group" in i.modifiers
        or "wait_group" in i.modifiers
        or i.opcode.startswith(("wgmma.fence", "tcgen05.fence", "tcgen05.wait", "tcgen05.commit"))
    }
    assert wanted <= touched


WAIT = "mbarrier.try_wait.parity.shared::cta.b64 %done, [%full], %parity;"
ARRIVE = "@%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], 4096;"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("fence.proxy.async.shared::cta;", {"deleted": ""}),
        ("wgmma.wait_group.sync.aligned 1;", {
            "deleted": "", "one group more in flight": "wgmma.wait_group.sync.aligned 2;",
        }),
        ("@%p cp.async.bulk.wait_group 0;", {
            "deleted": "",
            "one group more in flight": "@%p cp.async.bulk.wait_group 1;",
            "waits for reads only": "@%p cp.async.bulk.wait_group.read 0;",
        }),
        (WAIT, {
            "deleted": "setp.eq.u32 %done, 0, 0;",
            "parity flipped": "{ .reg .u32 %other_parity; xor.b32 %other_parity, %parity, 1; "
            "mbarrier.try_wait.parity.shared::cta.b64 %done, [%full], %other_parity; }",
            "acquire -> relaxed":
            "mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %done, [%full], %parity;",
        }),
        (ARRIVE, {
            "deleted": "",
            "bytes halved": ARRIVE.replace("4096", "2048"),
            "16 bytes more": ARRIVE.replace("4096", "4112"),
            "bytes not announced": "@%p mbarrier.arrive.shared::cta.b64 _, [%full];",
            "announced without arrival":
            "@%p mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%full], 4096;",
            "release -> relaxed": ARRIVE.replace("expect_tx", "expect_tx.relaxed.cta"),
        }),
        ("mbarrier.init.shared::cta.b64 [%full], 1;", {
            "deleted": "", "count +1": "mbarrier.init.shared::cta.b64 [%full], 2;",
        }),
        ("bar.sync 1, 128;", {
            "deleted": "", "count +32": "bar.sync 1, 160;", "count -32": "bar.sync 1, 96;",
        }),
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%far];", {
            "deleted": "",
            "count +1": "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%far], 2;",
            "release -> relaxed": "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%far];",
        }),
        ("ld.acquire.gpu.global.u32 %r, [%flag];", {
            "acquire -> relaxed": "ld.relaxed.gpu.global.u32 %r, [%flag];",
        }),
        ("add.u32 %r, %r, 1;", {}),
    ],
)  # fmt: skip
def test_an_instruction_is_weakened_in_these_ways(source: str, expected: dict[str, str]) -> None:
    assert dict(weakened(source)) == expected


def test_a_proxy_fence_is_moved_past_the_barrier_that_follows() -> None:
    text = litmus("tma_store_without_proxy_fence").text("ok")
    mutant = next(m for m in mutants(text) if m.operator == "moved past the barrier")
    changed = mutant.apply(text)
    assert changed.index("bar.sync") < changed.index("fence.proxy.async.shared::cta;")


# Score


def scored(name: str, executor: Executor | None = None, seconds: float | None = None) -> Score:
    case = litmus(name)
    (launch,) = case.launches
    with executor or ThreadPoolExecutor(1) as running:
        return score(case.text("ok"), [Scenario(launch, {})], running, seconds=seconds)


def test_caught_equivalent_and_surviving_mutants_are_all_mutants() -> None:
    found = scored("stage_released_before_wait")
    total = len(mutants(litmus("stage_released_before_wait").text("ok")))
    assert total == len(found.verdicts) > 20
    parts = [found.of(outcome) for outcome in ("caught", "equivalent", "survived")]
    assert sum(map(len, parts)) == total
    assert found.value >= MIN_SCORE


def test_mutants_that_time_is_too_short_for_survive() -> None:
    found = scored("exchange_without_barrier", seconds=1e-6)
    assert found.verdicts
    assert all("the unchanged kernel alone" in v.by for v in found.of("survived"))
    assert len(found.of("survived")) == len(found.verdicts)


def test_a_kernel_that_is_not_clean_is_not_mutated() -> None:
    case = litmus("tma_store_without_proxy_fence")
    (launch,) = case.launches
    with ThreadPoolExecutor(1) as executor, pytest.raises(HazardError, match="PROXY-MISSING"):
        score(case.text("bug"), [Scenario(launch, {})], executor)


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_enough_mutants_of_a_golden_kernel_are_caught(name: str) -> None:
    golden = GOLDEN[name]
    subjects = golden.subjects()
    with executor_of("processes:2") as executor:
        found = score(subjects[0].ptx, [Scenario(s.launch, s.data) for s in subjects], executor)
    survivors = "\n".join(f"{v.mutant.name} ({v.by})" for v in found.of("survived"))
    assert found.ok, survivors
    assert len(found.of("equivalent")) <= MAX_EQUIVALENT * len(found.verdicts)


# Rules

FRAME = """.version 8.6
.target sm_100a
.address_size 64
.shared .align 8 .b64 bar_word;
.visible .entry k(.param .u32 n)
{{
.reg .pred %p<8>;
.reg .b32 %r<32>;
.reg .f32 %f<16>;
.reg .b64 %d<8>;
mov.u32 %r0, %tid.x;
ld.param.u32 %r1, [n];
mov.u32 %r2, bar_word;
setp.eq.u32 %p0, %r0, 0;
{body}
ret;
}}
"""
MMA = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d0, %d1, 1, 1, 1, "
    "0, 0;\n"
)
LD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r9}, [%r8];\n"
POLL = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;\n"
STORE = "st.shared.u32 [%r2], %r0;\n"
FENCE = "wgmma.fence.sync.aligned;"
HERE = " // here"


def place(body: str, operator: str, facts: Facts) -> Place:
    """The mutant of the line marked `here` in a small kernel."""
    text = FRAME.format(body=body)
    line = next(i for i, t in enumerate(text.splitlines(), 1) if HERE in t)
    mutant: Mutant = next(
        m for m in mutants(text) if m.line == line and m.operator.startswith(operator)
    )
    return Place(Paths(parse(text).entry()), mutant, facts)


EXAMPLES = {
    "guard-never-holds": (
        "deleted",
        f"mov.u32 %r3, 0;\nsetp.ne.and.u32 %p2, %r3, 0, %p0;\n@%p2 bar.sync 0;{HERE}",
        f"mov.u32 %r3, 0;\n@%p0 mov.u32 %r3, 1;\nsetp.ne.and.u32 %p2, %r3, 0, %p0;\n"
        f"@%p2 bar.sync 0;{HERE}",
    ),
    "nothing-to-wait-for": (
        "deleted",
        f"{MMA}wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;{HERE}",
        f"L: {MMA}wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;{HERE}\n"
        "@%p0 bra L;",
    ),
    "registers-untouched": (
        "deleted",
        f"{FENCE}\nL: {MMA}add.u32 %r5, %r5, 1;\n{FENCE}{HERE}\n{MMA}@%p0 bra L;",
        f"{FENCE}\nL: {MMA}mov.f32 %f0, %f9;\n{FENCE}{HERE}\n{MMA}@%p0 bra L;",
    ),
    "barrier-follows": (
        "deleted",
        f"@%p0 {STORE}bar.warp.sync 0xffffffff;{HERE}\nadd.u32 %r5, %r5, 1;\nbar.sync 0;",
        f"@%p0 {STORE}bar.warp.sync 0xffffffff;{HERE}\nld.shared.u32 %r5, [%r2];\nbar.sync 0;",
    ),
    "lanes-did-nothing": (
        "deleted",
        f"bar.sync 0;\n{LD}bar.warp.sync 0xffffffff;{HERE}\n{STORE}",
        f"bar.sync 0;\nld.shared.u32 %r5, [%r2];\nbar.warp.sync 0xffffffff;{HERE}\n{STORE}",
    ),
    "only-exit-follows": (
        "deleted",
        f"bar.sync 0;\n{STORE}bar.sync 1, 128;{HERE}\nbra END;\nEND:",
        f"bar.sync 1, 128;\n{STORE}bar.sync 1, 128;{HERE}\nbra END;\nEND:",
    ),
    "init-fence-publishes": (
        "release -> relaxed",
        "mbarrier.init.shared::cta.b64 [%r2], 1;\nfence.mbarrier_init.release.cluster;\n"
        f"barrier.cluster.arrive.aligned;{HERE}\nbarrier.cluster.wait.aligned;",
        "mbarrier.init.shared::cta.b64 [%r2], 1;\nfence.mbarrier_init.release.cluster;\n"
        f"{STORE}barrier.cluster.arrive.aligned;{HERE}\nbarrier.cluster.wait.aligned;",
    ),
    "nothing-of-its-own": (
        "release -> relaxed",
        f"{POLL}mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;{HERE}",
        f"{POLL}{STORE}mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;{HERE}",
    ),
    "no-tensor-work-before": (
        "deleted",
        f"{LD}tcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
        f"tcgen05.fence::before_thread_sync;{HERE}\nbar.sync 0;\n{LD}",
        f"tcgen05.fence::before_thread_sync;\nbar.sync 0;\n{LD}"
        f"tcgen05.fence::before_thread_sync;{HERE}\nbar.sync 0;\n{LD}",
    ),
    "no-tensor-work-around": (
        "deleted",
        f"{LD}bar.sync 0;\ntcgen05.fence::after_thread_sync;{HERE}\n",
        f"{LD}bar.sync 0;\ntcgen05.fence::after_thread_sync;{HERE}\n{LD}",
    ),
    "another-fence-follows": (
        "deleted",
        f"{LD}bar.sync 0;\ntcgen05.fence::after_thread_sync;{HERE}\n{POLL}"
        f"tcgen05.fence::after_thread_sync;\n{LD}",
        f"{LD}bar.sync 0;\ntcgen05.fence::after_thread_sync;{HERE}\n{LD}"
        "tcgen05.fence::after_thread_sync;\n",
    ),
    "wait-hands-over-no-tensor-work": (
        "deleted",
        f"tcgen05.fence::after_thread_sync;\n{LD}{POLL}tcgen05.fence::after_thread_sync;{HERE}\n{LD}",
        f"tcgen05.fence::after_thread_sync;\n{LD}bar.sync 0;\n"
        f"tcgen05.fence::after_thread_sync;{HERE}\n{LD}",
    ),
}
"""Rule -> operator, a body where it applies, one where it must not."""
BY_FACTS = {"waits-itself"}
"""Rules that look at who waited, tested below."""
NO_FACTS = Facts((), ())


def test_every_rule_has_examples() -> None:
    assert {rule.name for rule in RULES} == set(EXAMPLES) | BY_FACTS


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_rule_holds_where_its_reason_does_and_nowhere_else(name: str) -> None:
    rule = next(r for r in RULES if r.name == name)
    operator, yes, no = EXAMPLES[name]
    assert rule.applies(place(yes, operator, NO_FACTS))
    assert not rule.applies(place(no, operator, NO_FACTS))


def test_an_arrival_that_only_its_thread_waits_for_may_be_relaxed() -> None:
    rule = next(r for r in RULES if r.name == "waits-itself")
    body = f"mbarrier.arrive.shared::cta.b64 _, [%r2];{HERE}\n"
    line = FRAME.format(body=body).splitlines().index(body.strip()) + 1
    assert rule.applies(place(body, "release", Facts((), (line,))))
    assert not rule.applies(place(body, "release", NO_FACTS))


def test_a_wait_that_hands_tensor_work_over_needs_its_fence() -> None:
    rule = next(r for r in RULES if r.name == "wait-hands-over-no-tensor-work")
    body = EXAMPLES[rule.name][1]
    line = FRAME.format(body=body).splitlines().index(POLL.strip()) + 1
    assert not rule.applies(place(body, "deleted", Facts((line,), ())))


def test_constants_are_followed_through_moves_comparisons_and_loops() -> None:
    body = "mov.u32 %r3, 0;\nmov.u32 %r4, 7;\nL: add.u32 %r3, %r3, 1;\n@%p0 bra L;\n"
    paths = Paths(parse(FRAME.format(body=body)).entry())
    end = len(paths.body) - 1
    assert paths.constant(end, "%r4") == 7
    assert paths.constant(end, "%r3") == VARIES

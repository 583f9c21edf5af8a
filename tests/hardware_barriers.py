"""Cases of mbarriers and of the barriers of CTAs and clusters."""

from collections.abc import Iterator
from itertools import product

from hardware_async import CLUSTER_SYNC, async_case, one_thread, wait
from hardware_runs import Case
from hardware_values import image


def _script(*lines: str) -> str:
    """Lines of one thread; `> text` marks one whose result %r8 is written to the next word."""
    found, place = [], 0
    for line in lines:
        found.append(line.removeprefix("> "))
        if line.startswith("> "):
            found.append(f"st.shared.b32 [%smem+{4 * place}], %r8;")
            place += 1
    return one_thread("\n".join(found))


def _test(parity: int, barrier: str = "%bar+8", form: str = "test_wait", limit: str = "") -> str:
    return (
        f"> mbarrier.{form}.parity.shared::cta.b64 %p, [{barrier}], {parity}{limit};\n"
        "selp.u32 %r8, 1, 0, %p;"
    )


def mbarrier_cases() -> Iterator[Case]:
    """Scripts of one thread: every form, and what the phase and the tokens then say."""
    init = "mbarrier.inval.shared::cta.b64 [%bar+8];\nmbarrier.init.shared::cta.b64 [%bar+8], {};"
    both = (_test(0), _test(1))
    arrive = "mbarrier.arrive.shared::cta.b64 %x1, [%bar+8];"
    pending = "> mbarrier.pending_count.b64 %r8, %x1;"
    token = "> mbarrier.test_wait.shared::cta.b64 %p, [%bar+8], %x1;\nselp.u32 %r8, 1, 0, %p;"
    expect = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar+8], {};"
    complete = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar+8], {};"
    word = ("> ld.volatile.shared.b64 %x3, [%bar+8];\nmov.b64 {%r8, %r9}, %x3;",
            "> mov.b32 %r8, %r9;")  # fmt: skip
    scripts = {
        "fresh": (init.format(2), *both),
        "phases of one arrival": (
            init.format(1), *both, arrive, *both, arrive, *both, arrive, *both,
        ),
        "counts and tokens": (
            init.format(5), arrive, pending, token,
            "mbarrier.arrive.shared::cta.b64 %x1, [%bar+8], 2;", pending, token, *both,
            "mbarrier.arrive.noComplete.shared::cta.b64 %x1, [%bar+8], 1;", pending, *both,
            "mbarrier.arrive.release.cta.shared::cta.b64 _, [%bar+8];", token, *both,
        ),
        "arrive_drop": (
            init.format(4), "mbarrier.arrive_drop.shared::cta.b64 %x1, [%bar+8];", pending,
            "mbarrier.arrive_drop.noComplete.shared::cta.b64 %x1, [%bar+8], 1;", pending,
            "mbarrier.arrive.shared::cta.b64 %x1, [%bar+8], 2;", pending, *both, arrive, pending,
            *both, arrive, pending, *both,
        ),
        "arrive_drop of the last": (
            init.format(1), "mbarrier.arrive_drop.shared::cta.b64 %x1, [%bar+8];", pending, *both,
        ),
        "bytes before the arrival": (
            init.format(1), expect.format(64), *both, arrive, *both, complete.format(48), *both,
            complete.format(16), *both,
        ),
        "bytes completed before they are expected": (
            init.format(2), complete.format(32), arrive, *both, expect.format(32), *both, arrive,
            *both,
        ),
        "arrive.expect_tx": (
            init.format(2), "mbarrier.arrive.expect_tx.shared::cta.b64 %x1, [%bar+8], 96;",
            pending, *both, complete.format(96), *both, arrive, pending, *both,
            "mbarrier.arrive_drop.expect_tx.shared::cta.b64 %x1, [%bar+8], 16;", pending,
            complete.format(16), *both, arrive, *both,
        ),
        "largest count": (
            init.format(2**20 - 1), arrive, pending, *both,
            f"mbarrier.arrive.shared::cta.b64 %x1, [%bar+8], {2**20 - 2};", pending, *both,
        ),
        "largest number of bytes": (
            init.format(1), expect.format(2**20 - 1), arrive, *both, complete.format(2**20 - 1),
            *both,
        ),
        "old tokens": (
            init.format(1), "mbarrier.arrive.shared::cta.b64 %x1, [%bar+8];", token,
            "mbarrier.arrive.shared::cta.b64 %x2, [%bar+8];", token,
            "mbarrier.arrive.shared::cta.b64 %x2, [%bar+8];", token,
        ),
        "try_wait": (
            init.format(1), _test(1, form="try_wait"), _test(0, form="try_wait", limit=", 1000"),
            _test(0, form="try_wait", limit=", 0"), arrive, _test(0, form="try_wait"),
            _test(0, form="try_wait", limit=", 20000"), _test(1, form="try_wait", limit=", 100"),
            "> mbarrier.try_wait.shared::cta.b64 %p, [%bar+8], %x1;\nselp.u32 %r8, 1, 0, %p;",
            "> mbarrier.try_wait.acquire.cluster.shared::cta.b64 %p, [%bar+8], %x1;\n"
            "selp.u32 %r8, 1, 0, %p;",
        ),
        "orders and scopes": (
            init.format(8), *(
                f"mbarrier.arrive.{o}.{s}.shared::cta.b64 _, [%bar+8];"
                for o, s in product(("release", "relaxed"), ("cta", "cluster"))
            ),
            *(f"mbarrier.arrive.expect_tx.{o}.{s}.shared::cta.b64 _, [%bar+8], 16;"
              for o, s in product(("release", "relaxed"), ("cta", "cluster"))),
            *both, complete.format(64), *both,
            *(f"> mbarrier.{f}.parity.{o}.{s}.shared::cta.b64 %p, [%bar+8], 0;\n"
              "selp.u32 %r8, 1, 0, %p;"
              for f, o, s in product(("test_wait", "try_wait"), ("acquire", "relaxed"),
                                     ("cta", "cluster"))),
        ),
        "generic addresses": (
            "add.u32 %r4, %bar, 8; cvt.u64.u32 %x3, %r4; cvta.shared.u64 %x3, %x3;",
            "mbarrier.inval.b64 [%x3];", "mbarrier.init.b64 [%x3], 1;",
            "mbarrier.arrive.b64 %x1, [%x3];", pending,
            "> mbarrier.test_wait.parity.b64 %p, [%x3], 0;\nselp.u32 %r8, 1, 0, %p;",
        ),
        "words after inval": tuple(
            line for first in (
                (init.format(3), arrive), (init.format(1), expect.format(80)),
                (init.format(1), arrive), (init.format(2), complete.format(48)),
                (init.format(2**20 - 1), arrive), (init.format(1), expect.format(16), arrive),
            )
            for line in (*first, "mbarrier.inval.shared::cta.b64 [%bar+8];", *word,
                         "mbarrier.init.shared::cta.b64 [%bar+8], 1;")
        ),
        "bytes of a live barrier": (
            "mbarrier.inval.shared::cta.b64 [%bar+8];", "mov.b64 %x3, 0x123456789ABCDEF0;",
            "st.volatile.shared.b64 [%bar+8], %x3;", "mbarrier.init.shared::cta.b64 [%bar+8], 5;",
            "fence.sc.cta;", *word, arrive, "fence.sc.cta;", *word,
        ),
    }  # fmt: skip
    for name, lines in scripts.items():
        yield async_case(f"mbarrier {name}", _script(*lines), num_results=len(lines))
    words = f"""{one_thread(init.format(129))}
mbarrier.arrive.shared::cta.b64 _, [%bar+8];
setp.lt.u32 %p, %thread, 1;
@%p mbarrier.arrive.shared::cta.b64 _, [%bar+8];
{wait("%bar+8")}
mad.lo.u32 %r4, %thread, 4, %smem; st.shared.b32 [%r4], %thread;"""
    yield async_case("mbarrier that a whole CTA arrives at", words)
    asynchronous = f"""{one_thread(init.format(128))}
mad.lo.u32 %r4, %thread, 16, %smem; mad.wide.u32 %x1, %thread, 16, %aux;
cp.async.ca.shared.global [%r4], [%x1], 16;
cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%bar+8];
{wait("%bar+8")}
cp.async.cg.shared.global [%r4+2048], [%x1], 16;
cp.async.mbarrier.arrive.shared::cta.b64 [%bar+8];
mbarrier.arrive.shared::cta.b64 _, [%bar+8];
{wait("%bar+8", "1")}"""
    yield async_case(
        "mbarrier that cp.async arrives at", asynchronous, aux=image("int", "bits", 2048, 1)
    )
    for form in ("", ".expect_tx", "_drop"):
        tail = ", 16" if form == ".expect_tx" else ""
        finish = (
            "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r6], 16;" if tail else ""
        )
        arrivals = (
            "REMOTE: mapa.shared::cluster.u32 %r6, %r4, %r5;\n"
            f"mbarrier.arrive{form}.release.cluster.shared::cluster.b64 _, [%r6]{tail};\n{finish}\n"
            "add.u32 %r5, %r5, 1; setp.lt.u32 %p, %r5, 4; @%p bra REMOTE;"
        )
        body = f"""{one_thread(init.format(4))}
{CLUSTER_SYNC}
add.u32 %r4, %bar, 8;
mov.u32 %r5, 0;
{one_thread(arrivals)}
{wait("%bar+8")}
mad.lo.u32 %r4, %thread, 4, %smem; st.shared.b32 [%r4], %thread;"""
        yield async_case(f"mbarrier remote arrive{form}", body, cluster=4)


def barrier_cases() -> Iterator[Case]:
    """Named barriers, reductions over a CTA, cluster barriers, grid dependency control."""
    store = "mad.lo.u32 %r4, %thread, 4, %smem;\nst.shared.b32 [%r4], %r8;"
    load = "mad.lo.u32 %r4, %thread, 4, %smem;\nld.shared.b32 %r9, [%r4];\nand.b32 %r10, %r9, 7;\n"
    some = f"{load}setp.gt.u32 %p, %r10, 3;\nbar.sync 0;\n"
    for form in ("bar.red", "barrier.cta.red", "barrier.red"):
        yield async_case(f"{form}.popc", f"{some}{form}.popc.u32 %r8, 1, %p;\n{store}")
        yield async_case(
            f"{form}.popc of half a CTA",
            f"{some}setp.lt.u32 %q, %thread, 64;\nmov.u32 %r8, 0;\n@!%q bra LEFT;\n"
            f"{form}.popc.u32 %r8, 2, 64, !%p;\nLEFT:\nbar.sync 0;\n{store}",
        )
        for op in ("and", "or"):
            yield async_case(
                f"{form}.{op}",
                f"{some}setp.ne.u32 %p, %r10, 9;\n{form}.{op}.pred %q, 1, %p;\n"
                f"selp.u32 %r8, 5, 6, %q;\n{store}",
            )
    for sync, arrive in (("bar.sync", "bar.arrive"), ("barrier.cta.sync", "barrier.cta.arrive"),
                         ("barrier.sync", "barrier.arrive"),
                         ("barrier.cta.sync.aligned", "barrier.cta.arrive.aligned")):  # fmt: skip
        body = f"""setp.lt.u32 %p, %thread, 64;
mad.lo.u32 %r4, %thread, 4, %smem;
@%p bra CONSUMERS;
st.shared.b32 [%r4], %thread;
{arrive} 3, 128;
bra DONE;
CONSUMERS:
{sync} 3, 128;
ld.shared.b32 %r8, [%r4+256];
st.shared.b32 [%r4+512], %r8;
DONE:"""
        yield async_case(f"{sync} with {arrive}", body)
    for arrive, waits in (
        ("", ""), (".release", ".acquire"), (".relaxed", ""), (".aligned", ".aligned"),
        (".relaxed.aligned", ".acquire.aligned"), (".release.aligned", ".acquire.aligned"),
    ):  # fmt: skip
        fence = "fence.acq_rel.cluster;" if "relaxed" in arrive else ""
        body = f"""xor.b32 %r5, %rank, 1;
mad.lo.u32 %r4, %thread, 4, %smem; mapa.shared::cluster.u32 %r6, %r4, %r5;
st.shared::cluster.b32 [%r6], %thread;
{fence}
barrier.cluster.arrive{arrive};
barrier.cluster.wait{waits};
{fence}
ld.shared.b32 %r8, [%r4];
st.shared.b32 [%r4+512], %r8;"""
        yield async_case(f"barrier.cluster.arrive{arrive}, wait{waits}", body, cluster=2)
    quiet = f"""griddepcontrol.wait;
griddepcontrol.launch_dependents;
nanosleep.u32 100;
fence.sc.cta; fence.acq_rel.gpu; fence.sc.sys; membar.cta; membar.gl; membar.sys;
fence.proxy.async.global; fence.proxy.async.shared::cta; fence.proxy.alias;
mov.u32 %r8, 1;
{store}"""
    yield async_case("fences, grid dependency control, nanosleep", quiet)
    clocks = f"""mov.u32 %r8, %clock; mov.u64 %x1, %clock64; mov.u64 %x2, %globaltimer;
setp.ne.u64 %p, %x2, 0; selp.u32 %r8, 3, 4, %p;
{store}"""
    yield async_case("clocks run", clocks)


def all_cases() -> dict[str, list[Case]]:
    """By family."""
    return {"mbarrier": list(mbarrier_cases()), "barriers": list(barrier_cases())}

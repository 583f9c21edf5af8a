"""Cases of 1-D bulk copies, and of accesses to the shared memory of other CTAs of a cluster."""

from collections.abc import Iterator
from itertools import product

from hardware_async import CLUSTER_SYNC, STORES_DONE, async_case, one_thread, wait
from hardware_runs import Case
from hardware_values import image

_SMEM = 4096


def bulk_cases() -> Iterator[Case]:
    """cp.async.bulk in one dimension: to shared memory, out of it, between CTAs; reductions."""
    for nbytes, offset in ((16, 0), (48, 16), (1024, 32), (4096, 0)):
        offset = min(offset, _SMEM - nbytes)
        load = (
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %v0;\n"
            "add.u32 %r4, %smem, %v1;\nadd.u64 %x1, %aux, 64;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%x1], %v0, "
            "[%bar];"
        )
        yield async_case(
            f"bulk load of {nbytes} to +{offset}", f"{one_thread(load)}\n{wait()}",
            values=(nbytes, offset), aux=image("int", "bits", 8192, nbytes),
        )  # fmt: skip
        store = (
            "add.u32 %r4, %smem, %v1;\nadd.u64 %x1, %aux, 32;\n"
            f"cp.async.bulk.global.shared::cta.bulk_group [%x1], [%r4], %v0;\n{STORES_DONE}"
        )
        yield async_case(
            f"bulk store of {nbytes} from +{offset}", one_thread(store),
            values=(nbytes, offset), aux=image("int", "bits", 8192, nbytes),
        )  # fmt: skip
    yield async_case("bulk copy between CTAs", _to_peer("cp.async.bulk", ""), cluster=2)
    for cluster, mask in ((2, 3), (4, 5), (4, 15)):
        load = (
            f"{{ .reg .b16 %mask; mov.b16 %mask, {mask};\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%smem], [%aux], 256, [%bar], %mask; }"
        )
        body = f"""
{one_thread("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;")}
{CLUSTER_SYNC}
setp.ne.u32 %q, %rank, 0;
@%q bra FOLLOWERS;
{one_thread(load)}
FOLLOWERS:
shr.b32 %r5, {mask}, %rank;
and.b32 %r5, %r5, 1;
setp.eq.u32 %p, %r5, 0;
@%p bra WAITED;
{wait()}
WAITED:"""
        yield async_case(
            f"bulk multicast to {mask:04b}", body, cluster=cluster,
            aux=image("int", "bits", 256, mask),
        )  # fmt: skip
    yield from _bulk_reductions()


def _to_peer(opcode: str, operation: str) -> str:
    """Each CTA of a pair copies or adds 512 bytes to the other."""
    copy = (
        "xor.b32 %r5, %rank, 1;\nmapa.shared::cluster.u32 %r6, %bar, %r5;\n"
        "mapa.shared::cluster.u32 %r7, %smem, %r5;\nadd.u32 %r7, %r7, 1024;\n"
        f"{opcode}.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{operation} "
        "[%r7], [%smem], 512, [%r6];"
    )
    return f"""
{one_thread("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;")}
{CLUSTER_SYNC}
{one_thread(copy)}
{wait()}"""


def _bulk_reductions() -> Iterator[Case]:
    forms: list[tuple[str, str, tuple[str, ...]]] = [
        (op, kind, ("bits",))
        for op, kinds in {
            "add": ("u32", "s32", "u64"), "min": ("u32", "s32", "u64", "s64"),
            "max": ("u32", "s32", "u64", "s64"), "inc": ("u32",), "dec": ("u32",),
            "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
        }.items()
        for kind in kinds
    ]  # fmt: skip
    floats = ("normal", "wide", "small", "bits")
    forms += [("add", kind, floats) for kind in ("f32", "f64")]
    forms += [
        (op, kind, floats) for op, kind in product(("add.noftz", "min", "max"), ("f16", "bf16"))
    ]
    for op, kind, kinds in forms:
        values = kind if kind in ("f16", "bf16", "f32", "f64") else "int"
        for number, data in enumerate(kinds):
            reduce = (
                f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{kind} [%aux], [%smem], "
                f"1024;\n{STORES_DONE}"
            )
            yield async_case(
                f"bulk reduction {op}.{kind} of {data} values", one_thread(reduce),
                aux=image(values, data, 1024, 3), data=image(values, data, _SMEM, 4 + number),
            )  # fmt: skip
    for op, kind in (
        ("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "u32"), ("min", "s32"),
        ("max", "u32"), ("max", "s32"), ("inc", "u32"), ("dec", "u32"), ("and", "b32"),
        ("or", "b32"), ("xor", "b32"),
    ):  # fmt: skip
        body = _to_peer("cp.reduce.async.bulk", f".{op}.{kind}")
        yield async_case(f"bulk reduction into a peer {op}.{kind}", body, cluster=2)


def remote_cases() -> Iterator[Case]:
    """mapa, getctarank, accesses of shared::cluster, st.async, red.async; clusters of 2 to 8."""
    own = "mad.lo.u32 %r4, %thread, 16, %smem;\n"
    peer = (
        own
        + "add.u32 %r5, %rank, 1;\nand.b32 %r5, %r5, {};\nmapa.shared::cluster.u32 %r6, %r4, %r5;\n"
    )
    for cluster in (2, 4, 8):
        at = peer.format(cluster - 1)
        read = _neighbours(cluster)
        yield async_case(f"remote loads in clusters of {cluster}", read, cluster=cluster, grid=8)
        write = f"""{at}
ld.shared.v4.b32 {{%r8, %r9, %r10, %r11}}, [%r4];
{CLUSTER_SYNC}
mov.b64 %x0, {{%r11, %r8}};
st.shared::cluster.v2.b32 [%r6], {{%r8, %r9}};
st.shared::cluster.b64 [%r6+8], %x0;"""
        yield async_case(f"remote stores in clusters of {cluster}", write, cluster=cluster, grid=8)
        registers = """mad.lo.u32 %r4, %thread, 16, %smem;
mov.u32 %r8, %cluster_ctarank; mov.u32 %r9, %cluster_nctarank; mov.u32 %r10, %cluster_ctaid.x;
mov.u32 %r11, %cluster_nctaid.x;
st.shared.v4.b32 [%r4], {%r8, %r9, %r10, %r11};
mov.u32 %r8, %clusterid.x; mov.u32 %r9, %nclusterid.x; mov.u32 %r10, %ctaid.x;
mov.pred %p, %is_explicit_cluster; selp.u32 %r11, 1, 0, %p;
st.shared.v4.b32 [%r4+2048], {%r8, %r9, %r10, %r11};
mapa.shared::cluster.u32 %r8, %r4, 1;
getctarank.shared::cluster.u32 %r9, %bar;
cvt.u64.u32 %x1, %r4; cvta.shared.u64 %x1, %x1; mapa.u64 %x2, %x1, 1; getctarank.u64 %r10, %x2;
isspacep.shared::cta %p, %x2; selp.u32 %r11, 1, 0, %p;
isspacep.shared::cluster %p, %x2; @%p add.u32 %r11, %r11, 2;
and.b32 %r8, %r8, 0xFF000000;
bar.sync 0;
setp.lt.u32 %p, %thread, 64;
@%p st.shared.v4.b32 [%r4], {%r8, %r9, %r10, %r11};"""
        yield async_case(f"addresses in clusters of {cluster}", registers, cluster=cluster, grid=8)
    generic = """mad.lo.u32 %r4, %thread, 16, %smem;
cvt.u64.u32 %x1, %r4; cvta.shared.u64 %x1, %x1; xor.b32 %r5, %rank, 1; mapa.u64 %x2, %x1, %r5;
ld.v2.b64 {%x3, %x4}, [%x2];
barrier.cluster.arrive; barrier.cluster.wait;
st.v2.b64 [%x2], {%x4, %x3};"""
    yield async_case("remote accesses by generic addresses", generic, cluster=2)
    atomics = ("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "inc.u32",
               "dec.u32", "exch.b32")  # fmt: skip
    body = peer.format(1) + "ld.shared.b32 %r8, [%r4];\n" + CLUSTER_SYNC + "\n"
    for op in atomics:
        text = f"{body}atom.shared::cluster.{op} %r9, [%r6], %r8;\nst.shared.b32 [%r4+4], %r9;"
        yield async_case(f"remote atomic {op}", text, cluster=2)
    text = (
        f"{body}atom.relaxed.cluster.shared::cluster.cas.b32 %r9, [%r6], %r8, 7;\n"
        "st.shared.b32 [%r4+4], %r9;"
    )
    yield async_case("remote atomic cas", text, cluster=2)
    text = f"{body}cvt.u64.u32 %x1, %r8;\nred.shared::cluster.add.u64 [%r6+8], %x1;"
    yield async_case("remote red add.u64", text, cluster=2)
    contended = """mov.u32 %r5, 0; mapa.shared::cluster.u32 %r6, %smem, %r5;
mad.lo.u32 %r7, %thread, 4, %smem; ld.shared.b32 %r8, [%r7+512];
and.b32 %r9, %thread, 3; mad.lo.u32 %r6, %r9, 16, %r6;
red.shared::cluster.add.u32 [%r6], %r8; red.shared::cluster.xor.b32 [%r6+4], %r8;
red.relaxed.cluster.shared::cluster.max.s32 [%r6+8], %r8;"""
    yield async_case("words of one CTA that all of a cluster add to", contended, cluster=4)
    yield from _asynchronous_stores()


def _neighbours(cluster: int) -> str:
    """Every CTA reads the shared memory of the next one."""
    return f"""mad.lo.u32 %r4, %thread, 16, %smem;
add.u32 %r5, %rank, 1;
and.b32 %r5, %r5, {cluster - 1};
mapa.shared::cluster.u32 %r6, %r4, %r5;
ld.shared::cluster.v2.b32 {{%r8, %r9}}, [%r6];
ld.shared::cluster.u8 %r10, [%r6+8];
getctarank.shared::cluster.u32 %r11, %r6;
{CLUSTER_SYNC}
st.shared.v4.b32 [%r4], {{%r8, %r9, %r10, %r11}};"""


def _asynchronous_stores() -> Iterator[Case]:
    targets = """xor.b32 %r5, %rank, 1;
mad.lo.u32 %r4, %thread, 16, %smem;
mapa.shared::cluster.u32 %r6, %r4, %r5;
mapa.shared::cluster.u32 %r7, %bar, %r5;
ld.shared.v4.b32 {%r8, %r9, %r10, %r11}, [%r4];
mov.b64 %x1, {%r8, %r9}; mov.b64 %x2, {%r10, %r11}; mov.b32 %f0, %r8; mov.b32 %f1, %r9;
"""
    for kind, operand, nbytes in (
        ("b32", "%r8", 4), ("u32", "%r8", 4), ("s32", "%r8", 4), ("f32", "%f0", 4),
        ("b64", "%x2", 8), ("u64", "%x2", 8), ("v2.b32", "{%r9, %r8}", 8),
        ("v4.b32", "{%r11, %r8, %r9, %r10}", 16), ("v2.b64", "{%x2, %x1}", 16),
        ("v2.f32", "{%f1, %f0}", 8), ("v4.s32", "{%r11, %r10, %r9, %r8}", 16),
    ):  # fmt: skip
        expect = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {nbytes * 128};"
        vector, _, plain = kind.rpartition(".")
        suffix = f".{vector}" if vector else ""
        body = f"""{targets}
{one_thread(expect)}
{CLUSTER_SYNC}
st.async.shared::cluster.mbarrier::complete_tx::bytes{suffix}.{plain} [%r6], {operand}, [%r7];
{wait()}"""
        yield async_case(f"st.async {kind}", body, cluster=2)
    for op in ("inc.u32", "dec.u32", "min.u32", "max.u32", "add.u32", "min.s32", "max.s32",
               "add.s32", "and.b32", "or.b32", "xor.b32", "add.u64"):  # fmt: skip
        wide = op == "add.u64"
        nbytes = 8 if wide else 4
        expect = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {nbytes * 128};"
        for shared in (False, True):
            place = "and.b32 %r4, %thread, 3;\nmad.lo.u32 %r4, %r4, 16, %smem;\n" if shared else ""
            if shared and op in ("inc.u32", "dec.u32"):
                continue
            place += "mapa.shared::cluster.u32 %r6, %r4, %r5;\n" if shared else ""
            reduce = (
                f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op} "
                f"[%r6], {'%x2' if wide else '%r10'}, [%r7];"
            )
            body = f"{targets}\n{place}\n{one_thread(expect)}\n{CLUSTER_SYNC}\n{reduce}\n{wait()}"
            yield async_case(f"red.async {op}{' shared' if shared else ''}", body, cluster=2)


def _hinted_case() -> Case:
    """Bulk copies with prefetches and cache policies."""
    hinted = (
        "createpolicy.fractional.L2::evict_first.b64 %x2, 1.0;\n"
        "cp.async.bulk.prefetch.L2.global [%aux], 1024;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%smem], [%aux], 512, [%bar], %x2;\nadd.u32 %r4, %smem, 1024;\nadd.u64 %x1, %aux, 1024;\n"
        "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%x1], [%r4], 512, %x2;\n"
        "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\n"
        "cp.async.bulk.wait_group 0;"
    )
    return async_case(
        "bulk copies with cache hints", f"{one_thread(hinted)}\n{wait()}",
        aux=image("int", "bits", 4096, 9),
    )  # fmt: skip


def place_cases() -> Iterator[Case]:
    """Places of shared variables, generic and not."""
    layout = one_thread(
        "mov.u32 %r8, barriers;\nmov.u32 %r9, loose;\nmov.u32 %r10, lines;\n"
        "mov.u32 %r11, dynamic;\nst.shared.v4.b32 [%smem], {%r8, %r9, %r10, %r11};\n"
        "cvt.u64.u32 %x1, %r9;\ncvta.shared.u64 %x2, %x1;\ncvta.to.shared.u64 %x3, %x2;\n"
        "st.shared.b64 [%smem+16], %x3;\n"
        "mov.u32 %r8, %dynamic_smem_size;\nmov.u32 %r9, %total_smem_size;\n"
        "st.shared.v2.b32 [%smem+24], {%r8, %r9};"
    )
    yield async_case("addresses of shared variables", layout)
    yield async_case("addresses of shared variables in a cluster", layout, cluster=2)


def all_cases() -> dict[str, list[Case]]:
    """By family."""
    return {
        "bulk copies": [*bulk_cases(), _hinted_case()],
        "remote": [*remote_cases(), async_case(
            "remote loads in a cluster of 16", _neighbours(16), cluster=16
        )],
        "places": list(place_cases()),
    }  # fmt: skip

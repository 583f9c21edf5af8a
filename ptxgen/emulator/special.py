"""Special registers: where generated code finds them."""

from ptxgen.emulator.addresses import RESERVED_SCRATCH_BYTES
from ptxgen.errors import UnknownInstructionError

UNIFORM = {
    "%ntid.x": "F.cta.ntid[0]", "%ntid.y": "F.cta.ntid[1]", "%ntid.z": "F.cta.ntid[2]",
    "%ctaid.x": "F.cta.ctaid[0]", "%ctaid.y": "F.cta.ctaid[1]", "%ctaid.z": "F.cta.ctaid[2]",
    "%nctaid.x": "F.cta.nctaid[0]", "%nctaid.y": "F.cta.nctaid[1]",
    "%nctaid.z": "F.cta.nctaid[2]",
    "%clusterid.x": "F.cta.clusterid[0]", "%clusterid.y": "F.cta.clusterid[1]",
    "%clusterid.z": "F.cta.clusterid[2]",
    "%nclusterid.x": "F.cta.nclusterid[0]", "%nclusterid.y": "F.cta.nclusterid[1]",
    "%nclusterid.z": "F.cta.nclusterid[2]",
    "%cluster_ctaid.x": "F.cta.cluster_ctaid[0]", "%cluster_ctaid.y": "F.cta.cluster_ctaid[1]",
    "%cluster_ctaid.z": "F.cta.cluster_ctaid[2]",
    "%cluster_nctaid.x": "F.cta.cluster_nctaid[0]",
    "%cluster_nctaid.y": "F.cta.cluster_nctaid[1]",
    "%cluster_nctaid.z": "F.cta.cluster_nctaid[2]",
    "%cluster_ctarank": "F.cta.rank", "%cluster_nctarank": "F.cta.cluster_size",
    "%is_explicit_cluster": "F.cta.explicit_cluster",
    "%smid": "F.cta.smid", "%nsmid": "F.machine.num_sms", "%gridid": "0",
    "%warpid": "F.warp.index", "%nwarpid": "64",
    "%clock": "F.machine.clock() & 0xFFFFFFFF", "%clock_hi": "F.machine.clock() >> 32",
    "%clock64": "F.machine.clock()", "%globaltimer": "F.machine.clock()",
    "%globaltimer_lo": "F.machine.clock() & 0xFFFFFFFF",
    "%globaltimer_hi": "F.machine.clock() >> 32",
    "%dynamic_smem_size": "F.cta.dynamic_smem_bytes",
    "%total_smem_size": "F.cta.total_smem_bytes", "%aggr_smem_size": "F.cta.aggr_smem_bytes",
    "%reserved_smem_offset_begin": "0", "%reserved_smem_offset_end": str(RESERVED_SCRATCH_BYTES),
    "%reserved_smem_offset_cap": "1024", "%reserved_smem_offset_0": "0",
    "%reserved_smem_offset_1": "0", "WARP_SZ": "32", "%current_graph_exec": "0",
    "%envreg1": "F.machine.grid_workspace() >> 32",
    "%envreg2": "F.machine.grid_workspace() & 0xFFFFFFFF",
    **{f"%envreg{i}": "0" for i in (0, *range(3, 32))},
    **{f"%pm{i}": "F.machine.clock() & 0xFFFFFFFF" for i in range(8)},
    **{f"%pm{i}_64": "F.machine.clock()" for i in range(8)},
}  # fmt: skip
"""Register -> expression, the same in all lanes of a warp."""

VARYING = {
    "%tid.x": ("F.warp.tid[0]", "F.tid(0)"),
    "%tid.y": ("F.warp.tid[1]", "F.tid(1)"),
    "%tid.z": ("F.warp.tid[2]", "F.tid(2)"),
    "%laneid": ("LANES", "F.lane"),
    "%lanemask_eq": ("LANEMASK_EQ", "1 << F.lane"),
    "%lanemask_lt": ("LANEMASK_LT", "(1 << F.lane) - 1"),
    "%lanemask_le": ("LANEMASK_LE", "(2 << F.lane) - 1"),
    "%lanemask_gt": ("LANEMASK_GT", "FULL & -(2 << F.lane)"),
    "%lanemask_ge": ("LANEMASK_GE", "FULL & -(1 << F.lane)"),
}
"""Register -> (array expression, expression with one lane)."""


def is_special(name: str) -> bool:
    """Whether there is a special register of that name."""
    return name in UNIFORM or name in VARYING


def special_register(name: str, mode: str) -> tuple[str, str]:
    """Form and expression of a special register.

    Raises: UnknownInstructionError if there is none of that name.
    """
    if name in UNIFORM:
        return "S", f"({UNIFORM[name]})"
    if name in VARYING:
        many, one = VARYING[name]
        return ("S", f"({one})") if mode == "one" else ("V", many)
    raise UnknownInstructionError(f"the emulator does not know the register {name}")

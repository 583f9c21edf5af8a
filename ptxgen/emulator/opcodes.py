"""All opcode families: importing this registers them."""

from ptxgen.emulator import (
    access,
    bulk,
    fragment,
    op_atomic,
    op_barrier,
    op_bits,
    op_bulk,
    op_call,
    op_carry,
    op_compare,
    op_control,
    op_convert,
    op_convert_packed,
    op_cp_async,
    op_float,
    op_float_functions,
    op_integer,
    op_launch_control,
    op_matrix,
    op_mbarrier,
    op_memory,
    op_move,
    op_remote,
    op_shuffle,
    op_tcgen05,
    op_tensor_map,
    op_wgmma,
    op_wmma,
    tcgen05,
    tensor_copies,
    touches,
    warpgroup,
)
from ptxgen.emulator.runtime import RUNTIME

FAMILIES = (
    access, bulk, fragment, op_atomic, op_barrier, op_bits, op_bulk, op_call, op_carry,
    op_compare, op_control, op_convert, op_convert_packed, op_cp_async, op_float,
    op_float_functions, op_integer, op_launch_control,
    op_matrix, op_mbarrier, op_memory, op_move, op_remote, op_shuffle, op_tcgen05,
    op_tensor_map, op_wgmma, op_wmma, tcgen05, tensor_copies, touches, warpgroup,
)  # fmt: skip
"""The modules that hold lowerings or run-time functions."""

__all__ = ["FAMILIES", "RUNTIME"]

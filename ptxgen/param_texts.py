"""What each kernel parameter is, in a few words: the comment behind its `.param` line."""

import re

from ptxgen.errors import RenderError

COMMON = {
    "a_map": "tensor map to load A",
    "b_map": "tensor map to load B",
    "d_map": "tensor map to store D",
    "d_tail_map": "the same for the last columns of a tile, fewer than its other boxes have",
    "a_pointer": "address of A",
    "b_pointer": "address of B",
    "d_pointer": "address of D",
    "a_stride_bytes": "bytes from one stored row of A to the next",
    "b_stride_bytes": "bytes from one stored row of B to the next",
    "d_stride_bytes": "bytes from one row of D to the next",
    "scale_a": "address of the scales of A",
    "scale_b": "address of the scales of B",
    "scale_a_row_bytes": "bytes from one row of scale_a to the next",
    "scale_b_row_bytes": "bytes from one row of scale_b to the next",
    "scale_a_k_bytes": "bytes from one block of K to the next in scale_a",
    "scale_b_k_bytes": "bytes from one block of K to the next in scale_b",
    "scale_a_k4_bytes": "bytes from four blocks of K to the next four in scale_a",
    "scale_b_k4_bytes": "bytes from four blocks of K to the next four in scale_b",
    "num_scale_atoms": "groups of 4 scales along K",
    "c": "address of C",
    "c_stride_bytes": "bytes from one row of C to the next",
    "beta": "factor of C",
    "bias": "address of the bias",
    "amax": "address of one float32, raised to the largest magnitude of D",
    "d_scale": "address of the scales of D",
    "d_scale_row_bytes": "bytes from one row of d_scale to the next",
    "d_scale_block_bytes": "bytes from one block of columns to the next in d_scale",
    "m": "rows of the product",
    "n": "columns of the product",
    "k": "elements of K",
    "num_k_tiles": "k-tiles of each sum",
    "k_tiles_per_part": "k-tiles that one CTA of a cluster sums",
    "num_m_tiles": "tiles along M; those of one cluster count as one",
    "num_n_tiles": "tiles along N; those of one cluster count as one",
    "num_tiles": "num_m_tiles * num_n_tiles",
    "raster_m_tiles": "tiles along M that are walked side by side",
    "group_multiplier": "x * this >> group_shift is x / (tiles of a group of the walk)",
    "group_shift": "bits",
    "last_group_multiplier": "x * this >> last_group_shift is x / (tiles along M of the last one)",
    "last_group_shift": "bits",
    "alpha": "factor of the product",
}
"""By name, where the kernel has no text of its own."""

MMA_M = "the operand on the MMA's M: A, or B if swapped"
MMA_N = "the operand on the MMA's N: B, or A if swapped"
OWN = {
    "gemm_sm100": {
        "a_map": f"tensor map to load {MMA_M}",
        "b_map": f"tensor map to load {MMA_N}",
        "sfa_map": "tensor map to load the scales of what a_map loads",
        "sfb_map": "tensor map to load the scales of what b_map loads",
        "scale_a": f"address of the scales of {MMA_M}",
        "scale_b": f"address of the scales of {MMA_N}",
        "m": f"rows of {MMA_M}",
        "n": f"rows of {MMA_N}",
    },
    "grouped_sm100": {
        "a_map": f"tensor map to load {MMA_M}",
        "b_map": f"tensor map to load {MMA_N}",
    },
    "grouped": {
        "a_map0": "tensor map to load A, by the largest boxes",
        "a_map#": "the same, half as many rows to a box",
        "d_row_bytes": "bytes from one row of D to the next",
        "d_group_bytes": "bytes from one group's D to the next one's",
        "scale_a_group_bytes": "bytes from one group's scale_a to the next one's",
        "scale_b_group_bytes": "bytes from one group's scale_b to the next one's",
        "sizes": "address of the rows of each group, or of the group of each row",
        "starts": "address of where each group starts: its row, or its k",
        "ends": "address of the row at which each group ends",
        "size_bytes": "bytes of one of these integers, 4 or 8",
        "alignment": "rows: starts are rounded up to a multiple of this",
        "first_start": "1: starts has one for group 0, too; 0: group 0 starts at row 0",
        "has_block_gaps": "1: scales of group g begin at block ceil(start / 128) + g; 0: without g",
        "num_groups": "groups",
        "m": "rows of A in each group, at most; contiguous: in all of them",
        "n": "columns of D in each group",
        "k": "elements of K in all groups",
        "num_k_tiles": "k-tiles of each sum; kgrouped: of all groups together",
        "num_n_tiles": "tiles along N of a group; those of one cluster count as one",
        "least_k_tiles": "k-tiles of a part of a tile, at least",
        "workspace": "address of a slot for each warpgroup of each CTA, zeros between launches",
    },
    "stream_read_sm90": {
        "data": "address of what is read",
        "num_chunks": "chunks to read",
    },
    "wgmma_issue_sm90": {
        "data": "address of what is copied to shared memory",
        "sums": "address of one float32 for each thread of the grid",
        "num_tiles": "tiles that each CTA computes",
        "num_k_tiles": "k-tiles of each tile",
    },
}
"""Start of a kernel's name -> parameters that mean something special there, by name."""


def param_text(kernel: str, name: str) -> str:
    """The comment on parameter `name` of `kernel`. The first digit of a_map1 and on counts as #.

    Raises: RenderError if the parameter has none yet.
    """
    key = re.sub(r"[1-9]$", "#", name)
    own = (texts for prefix, texts in OWN.items() if kernel.startswith(prefix))
    for texts in (*own, COMMON):
        if key in texts:
            return texts[key]
    raise RenderError(
        f"parameter {name} of {kernel} must have a comment, got none; try a line in param_texts.py"
    )

"""conversion: the time of a peer that is not here, through one that is.

A table holds peers that were measured together on one machine. The ratio of two of them there,
times the time of the second one here, stands in for the first one, and is called converted.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from ptxgen.errors import ArgumentError
from ptxgen.problem import Gemm

THROUGH = {
    "deepgemm_fp8_1d2d": "cublaslt_fp8_tensor_fast",
    "deepgemm_bf16": "cublas_bf16",
}
"""Peer -> the peer of the same run that it is converted through."""


@dataclass(frozen=True)
class PeerTable:
    """Times of peers on one machine, microseconds by (peer, m, n, k)."""

    source: str
    times: dict[tuple[str, int, int, int], float]
    grouped: dict[tuple[str, int, int, int, int], float] = field(default_factory=dict)
    """Seconds by (peer, groups, rows of each, n, k)."""
    copy_bytes_per_s: float = 0.0
    """Bandwidth of a copy there, reads and writes counted; 0 = not known."""

    def convert(self, peer: str, problem: Gemm, measured: dict[str, float]) -> float | None:
        """Seconds that `peer` would take, from the seconds that others took in this run; None if
        the table or this run lacks what is needed."""
        through = THROUGH.get(peer, "")
        shape = (problem.m, problem.n, problem.k)
        wanted, base = self.times.get((peer, *shape)), self.times.get((through, *shape))
        if wanted is None or base is None or through not in measured:
            return None
        return measured[through] * wanted / base


def load_peer_table(path: Path) -> PeerTable:
    """Read a table such as benchmarks/peers/h200.json.

    Raises: ArgumentError if it is not one.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        rows = table["rows"]
        grouped = {
            (row["peer"], row["groups"], row["m"], row["n"], row["k"]): float(row["us"]) * 1e-6
            for row in rows
            if row.get("groups", 1) > 1
        }
        copy = float(table.get("ceilings", {}).get("hbm_copy_tb_s", 0)) * 1e12
        times = {
            (row["peer"], row["m"], row["n"], row["k"]): float(row["us"])
            for row in rows
            if row.get("groups", 1) == 1
        }
    except OSError as error:
        raise ArgumentError(
            f"cannot read the peer table {path}: {error.strerror}; try another --peer-table"
        ) from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"{path} is not a peer table: must be an object with rows of peer, m, n, k and us, "
            f"got {error!r}; try benchmarks/peers/h200.json"
        ) from error
    return PeerTable(path.name, times, grouped, copy)


def default_table() -> Path | None:
    """benchmarks/peers/h200.json of this checkout; None where ptxgen is installed without it."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "peers" / "h200.json"
    return path if path.is_file() else None

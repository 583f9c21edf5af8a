"""tuning_table: measured times of configs, kept and looked up.

One row is one config of one problem on one machine: the kernel's text, the shape, the GPU, its
clocks, the driver and the assembler are the key, so nothing measured under other conditions is
taken for the same. The user's table is an SQLite file; tuned tables that ship with ptxgen are JSON
files of the same rows (ptxgen/tuned/NAME.json).
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any

from ptxgen.epilogue import Epilogue
from ptxgen.errors import ArgumentError
from ptxgen.problem import Gemm

SCHEMA = "ptxgen.tuning/1"
SCHEMA_VERSION = 1
"""`PRAGMA user_version` of the SQLite file."""
BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another one."""

_CREATE = """
CREATE TABLE IF NOT EXISTS measurement (
    kernel TEXT NOT NULL, text_hash TEXT NOT NULL, problem TEXT NOT NULL, device TEXT NOT NULL,
    clocks TEXT NOT NULL, driver TEXT NOT NULL, assembler TEXT NOT NULL,
    config TEXT NOT NULL, seconds REAL, spread REAL, error TEXT, measured_at REAL NOT NULL,
    PRIMARY KEY (kernel, text_hash, problem, device, clocks, driver, assembler, config)
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Environment:
    """Under what conditions something was measured."""

    device: str
    """Name of the GPU model, e.g. H200."""
    clocks: str = ""
    """Class of clocks and power, e.g. 1980 MHz, 700 W."""
    driver: str = ""
    """CUDA version of the driver."""
    assembler: str = ""
    """Name and version of the assembler, e.g. ptxas 13.0.88."""


@dataclass(frozen=True)
class Row:
    """One measurement: a config that ran, or that failed."""

    kernel: str
    text_hash: str
    """See `text_hash`."""
    problem: str
    """See `problem_key`."""
    device: str
    clocks: str
    driver: str
    assembler: str
    config: str
    """JSON object: the fields of the kernel's Config."""
    seconds: float | None
    """Median time of one call; None if the config failed."""
    spread: float
    """(slowest - fastest) / median of the samples."""
    error: str
    """Why it failed, or empty."""
    measured_at: float
    """Seconds since the epoch."""

    def config_fields(self) -> dict[str, Any]:
        """The fields of the kernel's Config."""
        data = json.loads(self.config)
        assert isinstance(data, dict)
        return data

    def differences(self, environment: Environment) -> tuple[str, ...]:
        """Which of clocks, driver and assembler are not those of `environment`, as far as known."""
        return tuple(
            name
            for name in ("clocks", "driver", "assembler")
            if getattr(environment, name) and getattr(environment, name) != getattr(self, name)
        )


_COLUMNS = tuple(f.name for f in fields(Row))


def problem_key(problem: Gemm) -> str:
    """What of a problem decides which config is best, as JSON with sorted keys: not alpha."""
    data = asdict(problem)
    del data["alpha"]
    if problem.epilogue == Epilogue():
        del data["epilogue"]  # as in tables that were made before there were any
    if problem.scale_format == "f32":
        del data["scale_format"]
    for name in ("a", "b", "d"):
        data[f"{name}_stride"] = problem.stride(name)
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def any_scale_strides(key: str) -> dict[str, Any]:
    """What a `problem_key` says, but for how the scales of blocks or groups are laid out."""
    problem: dict[str, Any] = json.loads(key)
    return {name: x for name, x in problem.items() if not name.endswith("_strides")}


def text_hash(ptx: str) -> str:
    """Hash of a PTX text without comments and blank lines, which change no instruction."""
    lines = (line.split("//", 1)[0].strip() for line in ptx.splitlines())
    return blake2b("\n".join(x for x in lines if x).encode(), digest_size=12).hexdigest()


def config_json(config: Any) -> str:
    """The fields of a Config as JSON with sorted keys."""
    return json.dumps(asdict(config), sort_keys=True, separators=(",", ":"))


def default_path() -> Path:
    """Where the user's table is: PTXGEN_TUNING_TABLE, or the user's data folder."""
    override = os.environ.get("PTXGEN_TUNING_TABLE")
    if override:
        return Path(override)
    from platformdirs import user_data_path

    return user_data_path("ptxgen") / "tuning.sqlite3"


class TuningTable:
    """The user's table. Several processes may write to it at once (WAL)."""

    def __init__(self, path: Path) -> None:
        """Open or create the table at `path`.

        Raises: ArgumentError if it cannot be, or is of another schema version.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._connection() as connection:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, SCHEMA_VERSION):
                    raise ArgumentError(
                        f"tuning table {path} has schema version {version}, this ptxgen reads "
                        f"{SCHEMA_VERSION}; try another PTXGEN_TUNING_TABLE, or delete it"
                    )
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(_CREATE)
                connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise ArgumentError(
                f"tuning table {path} cannot be used: {error}; try PTXGEN_TUNING_TABLE=PATH of a "
                "file that can be written"
            ) from error

    @classmethod
    def existing(cls, path: Path | None = None) -> "TuningTable | None":
        """The table at `path` (the default place if None), or None if there is none.

        Raises: ArgumentError if there is one that cannot be used.
        """
        path = path or default_path()
        return cls(path) if path.is_file() else None

    def put(self, row: Row) -> None:
        """Keep a row; one with the same key is replaced."""
        marks = ", ".join("?" * len(_COLUMNS))
        with self._connection() as connection:
            connection.execute(
                f"INSERT OR REPLACE INTO measurement ({', '.join(_COLUMNS)}) VALUES ({marks})",  # noqa: S608
                tuple(getattr(row, name) for name in _COLUMNS),
            )

    def rows(self, problem: Gemm | None = None, device: str | None = None) -> list[Row]:
        """All rows, or those of one problem or device, the fastest first, failures last."""
        wanted = {"problem": problem_key(problem) if problem else None, "device": device}
        chosen = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in chosen) or "1"
        with self._connection() as connection:
            found = connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM measurement WHERE {where} "  # noqa: S608
                "ORDER BY seconds IS NULL, seconds, config",
                tuple(chosen.values()),
            ).fetchall()
        return [Row(*values) for values in found]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S)) as connection, connection:
            yield connection


def shipped_rows(device: str) -> list[Row]:
    """Rows of the tuned table that ships for a GPU model; none if there is no such table."""
    return list(_shipped(device.lower()))


@cache
def _shipped(name: str) -> tuple[Row, ...]:
    source = files("ptxgen").joinpath("tuned", f"{name}.json")
    return tuple(read_rows(source.read_text(encoding="utf-8"))) if source.is_file() else ()


def read_rows(text: str) -> list[Row]:
    """Rows of a JSON table.

    Raises: ArgumentError if it is not one.
    """
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ArgumentError(
                f"tuned table has schema {data['schema']!r}, must be {SCHEMA!r}; try "
                "tune --export with this version"
            )
        return [
            Row(**{**row, "problem": _compact(row["problem"]), "config": _compact(row["config"])})
            for row in data["rows"]
        ]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"tuned table is not of schema {SCHEMA}: {error!r}; try tune --export"
        ) from error


def write_rows(rows: Iterable[Row]) -> str:
    """Rows as a JSON table, one a line, for shipping."""
    lines = []
    for row in rows:
        data = asdict(row)
        data["problem"], data["config"] = json.loads(row.problem), json.loads(row.config)
        lines.append(json.dumps(data, sort_keys=True))
    return f'{{"schema": "{SCHEMA}", "rows": [\n' + ",\n".join(lines) + "\n]}\n"


def best_rows(rows: Iterable[Row]) -> list[Row]:
    """The fastest row of each problem, in the order of the problems' keys."""
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row.device, row.problem)
        known = best.get(key)
        if row.seconds is not None and (
            known is None or known.seconds is None or row.seconds < known.seconds
        ):
            best[key] = row
    return [best[key] for key in sorted(best)]


def new_row(
    kernel: str, hash_of_text: str, problem: Gemm, environment: Environment, config: Any,
    samples: tuple[float, ...], error: str = "",
) -> Row:  # fmt: skip
    """A row for what was just measured: seconds per call of each sample, or why there is none."""
    ordered = sorted(samples)
    median = ordered[len(ordered) // 2] if ordered else None
    return Row(
        kernel=kernel,
        text_hash=hash_of_text,
        problem=problem_key(problem),
        device=environment.device,
        clocks=environment.clocks,
        driver=environment.driver,
        assembler=environment.assembler,
        config=config_json(config),
        seconds=median,
        spread=(ordered[-1] - ordered[0]) / median if median else 0.0,
        error=error,
        measured_at=time.time(),
    )


def _compact(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))

"""The cubin cache: what is a hit, and what happens when entries or folders are damaged."""

import multiprocessing
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxgen.assembler import Assembly, Cubin, plan_assembly
from ptxgen.cache import CacheWarning, assemble_cached, cache_key, clear, evict, list_entries
from ptxgen.errors import AssemblyError


def store(value: int) -> str:
    return (
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry store(.param .u64 out)\n{\n    .reg .b64 %out;\n"
        f"    ld.param.u64 %out, [out];\n    st.global.u32 [%out], {value};\n    ret;\n}}\n"
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PTXGEN_CACHE_DIR", str(tmp_path / "not" / "yet"))
    return tmp_path / "not" / "yet"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were really assembled."""
    seen: list[str] = []
    run = Assembly.run

    def counting(self: Assembly, ptx: str, lines: Sequence[str] | None = None) -> Cubin:
        seen.append(ptx)
        return run(self, ptx, lines)

    monkeypatch.setattr(Assembly, "run", counting)
    return seen


def test_a_second_call_gives_the_same_cubin_without_assembling(
    folder: Path, runs: list[str]
) -> None:
    first = assemble_cached(store(1))
    assert assemble_cached(store(1)) == first
    assert runs == [store(1)]


def test_a_rejected_text_is_not_cached(folder: Path) -> None:
    with pytest.raises(AssemblyError):
        assemble_cached(store(1).replace("ret;", "rett;"))
    assert list_entries() == []


@pytest.mark.parametrize("other", ["text", "arch", "assembler", "flags"])
def test_the_key_depends_on_everything_that_decides_the_bytes(other: str) -> None:
    plan = plan_assembly(store(1))
    changed = {
        "text": (store(2), plan),
        "arch": (store(1), replace(plan, arch="sm_90a")),
        "assembler": (store(1), replace(plan, identity="ptxas 99.0.1")),
        "flags": (store(1), replace(plan, flags=(*plan.flags, "-O2"))),
    }
    assert cache_key(*changed[other]) != cache_key(store(1), plan)


@pytest.mark.parametrize("damage", ["empty", "half", "one bit"])
def test_a_damaged_entry_is_built_again(folder: Path, runs: list[str], damage: str) -> None:
    first = assemble_cached(store(1))
    (path,) = folder.glob("??/*.cubin")
    data = bytearray(path.read_bytes())
    if damage == "one bit":
        data[-100] ^= 1
    else:
        del data[0 if damage == "empty" else len(data) // 2 :]
    path.write_bytes(data)
    assert assemble_cached(store(1)) == first
    assert len(runs) == 2
    assert assemble_cached(store(1)) == first
    assert len(runs) == 2


def test_the_entry_used_longest_ago_is_dropped_first(folder: Path) -> None:
    for value in (1, 2, 3):
        assemble_cached(store(value))
    paths = {e.key: e.path for e in list_entries()}
    keys = [cache_key(store(v), plan_assembly(store(v))) for v in (1, 2, 3)]
    for age, key in enumerate(keys):
        os.utime(paths[key], (age, age))
    assemble_cached(store(1))
    kept = sum(paths[keys[i]].stat().st_size for i in (0, 2))
    assert evict(max_bytes=kept) == 1
    assert {e.key for e in list_entries()} == {keys[0], keys[2]}


def test_entries_are_listed_and_cleared(folder: Path) -> None:
    assemble_cached(store(1))
    (entry,) = list_entries()
    assert (entry.arch, entry.entries) == ("sm_90", ("store",))
    assert clear() == 1
    assert list_entries() == []


def test_a_cache_that_is_a_file_is_said_once_and_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PTXGEN_CACHE_DIR", str(tmp_path / "file"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        cubins = [assemble_cached(store(1)) for _ in range(2)]
    assert cubins[0] == cubins[1]
    assert [w.category for w in caught] == [CacheWarning]
    assert "PTXGEN_CACHE_DIR" in str(caught[0].message)


def _assemble_in_process(start: Any, results: Any) -> None:
    start.wait()
    results.put((assemble_cached(store(1)).code, os.getpid()))


def test_processes_that_start_together_on_an_empty_cache_agree(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(4), context.Queue()
    workers = [
        context.Process(target=_assemble_in_process, args=(start, results)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    codes = {results.get(timeout=60)[0] for _ in workers}
    for worker in workers:
        worker.join()
    assert len(codes) == 1
    assert len(list_entries()) == 1
    assert not list(folder.glob("**/.ptxgen-*"))

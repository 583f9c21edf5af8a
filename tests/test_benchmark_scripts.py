"""The scripts in benchmarks/, each on the emulator: what they compare, and that they notice."""

import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ptxgen import selection
from ptxgen.benchmark.method import Contender
from ptxgen.emulator import EmulatorDevice
from ptxgen.launcher.properties import DeviceProperties
from ptxgen.renderer import render

FOLDER = Path(__file__).parent.parent / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="not a checkout: no benchmarks folder")


class EmulatedGpu(EmulatorDevice):
    """The emulator, with what the scripts ask of a GpuDevice."""

    name = "NVIDIA H200"
    index = 0
    properties = DeviceProperties(
        name, 0, (9, 0), "sm_90a", 4, 1980000, 3201000, 1 << 12, 1 << 37, 232448, 233472, (13, 0)
    )

    def __init__(self) -> None:
        super().__init__()
        self.driver = SimpleNamespace(cuMemcpyDtoD=self.copy)

    def current(self) -> Any:
        return nullcontext()

    def synchronize(self) -> None:
        pass

    def fill(self, address: int, nbytes: int, value: int = 0xFF) -> None:
        self.write(address, bytes([value]) * nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> tuple[int]:
        self.write(target, self.read(source, nbytes))
        return (0,)


class Call:
    """A PreparedCall whose every `fault`th run leaves another last byte of D."""

    fault = 0

    def __init__(self, device: EmulatedGpu, launch: Any, image: str) -> None:
        self.device, self.launch, self.image = device, launch, image
        self.runs = 0

    def __call__(self, addresses: Mapping[str, int], stream: int = 0) -> None:
        names = [buffer.name for buffer in self.launch.buffers]
        self.device.launch(self.launch, self.image, {name: addresses[name] for name in names})
        self.runs += 1
        if self.fault and self.runs % self.fault == 0:
            last = addresses["d"] + self.launch.buffer("d").nbytes - 1
            byte = self.device.read(last, 1)[0]
            self.device.write(last, bytes([byte ^ 1]))


def contender(
    name: str, watch: Any, call: Callable[[Mapping[str, int], int], None],
    copies: Sequence[Mapping[str, int]],
) -> Contender:  # fmt: skip
    call(copies[0], 1)
    return Contender(name, 1, lambda lead, count: 1e-3 * count)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """A function that imports a script and gives it an emulated GPU."""
    monkeypatch.setenv("PTXGEN_TUNING_TABLE", str(tmp_path / "none.sqlite3"))
    monkeypatch.setattr(Call, "fault", 0)
    selection.forget()

    @contextmanager
    def number(device: Any) -> Iterator[Any]:
        yield 1

    @contextmanager
    def watch(device: Any) -> Iterator[Any]:
        yield SimpleNamespace(device=device, stream=1)

    def imported(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        script = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(__import__("sys").modules, spec.name, script)
        spec.loader.exec_module(script)
        gpu = EmulatedGpu()
        replaced = {
            "open_gpu": lambda: (gpu, {}), "PreparedCall": Call,
            "image_of": lambda plan: render(plan).text, "new_stream": number, "stopwatch": watch,
            "graph_contender": contender,
            "launch_contender": lambda name, watch, launch, image, copies: contender(
                name, watch, Call(watch.device, launch, image), copies),
        }  # fmt: skip
        for attribute, value in replaced.items():
            if hasattr(script, attribute):
                monkeypatch.setattr(script, attribute, value)
        return script

    yield imported
    selection.forget()


def test_accuracy_on_the_emulator_is_that_of_the_exact_model(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    out = tmp_path / "accuracy.json"
    words = ["--device", "emulator", "--largest-k", "512", "-o", str(out)]
    assert load("accuracy").main(words) == 0
    report = json.loads(out.read_text())
    assert {row["accumulate"] for row in report["rows"]} == {"fast", "promoted"}


def test_cold_start_times_every_step(load: Callable[[str], ModuleType], tmp_path: Path) -> None:
    out = tmp_path / "cold.json"
    load("cold_start").main(["--device", "none", "-o", str(out)])
    for row in json.loads(out.read_text())["rows"]:
        assert 0 < row["from_cache_s"] < row["assembled_s"]


@pytest.mark.parametrize("fault", [0, 3])
def test_a_chain_that_differs_between_runs_is_reported(
    load: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    script = load("chain")
    monkeypatch.setattr(script, "M", (1, 33))
    monkeypatch.setattr(Call, "fault", fault)
    out = tmp_path / "chain.json"
    assert script.main(["-o", str(out)], [(256, 128, 256, 128, 256)]) == bool(fault)
    rows = json.loads(out.read_text())["chains"]
    assert [row["m"] for row in rows] == [1, 33]
    assert all(row["distinct_bytes"] > 16 for row in rows)


@pytest.mark.parametrize("fault", [0, 3])
def test_repeats_that_differ_are_reported(
    load: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    script = load("determinism")
    monkeypatch.setattr(Call, "fault", fault)
    extent = script.Extent(
        4, (("fp8-tensor", (40, 48, 256)), ("fp8-block", (24, 64, 256))), (64, 64, 128),
        (("fp8-block", (9, 64, 256)),), (1, 9),
    )  # fmt: skip
    out = tmp_path / "determinism.json"
    assert script.main(["-o", str(out)], extent) == bool(fault)
    report = json.loads(out.read_text())
    assert [r["differing"] for r in report["repeats"]] == [int(bool(fault))] * 2
    assert report["every_m"][0]["wrong_m"] == []
    assert [c["m"] for c in report["cost"]] == [1, 9]

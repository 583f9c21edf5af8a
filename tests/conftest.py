"""Options, the `device` fixture, and the rule that skipping never reads as success.

--require-gpu   a skipped `gpu` test is a failure: for machines that must have one
--all           also the tests marked `slow`: full products, builds
"""

from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

from ptxgen.launch import Device

collect_ignore: list[str] = []
"""Files that cannot be imported here: one that tests scripts of a checkout, outside of one."""
if not (Path(__file__).parent.parent / "benchmarks").is_dir():
    collect_ignore.append("test_benchmark_deepgemm.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail where a GPU test is skipped")
    parser.addoption("--all", action="store_true", help="run the tests marked slow, too")


@cache
def gpu_reason() -> str | None:
    """Why no GPU can be used here; None if one can."""
    from ptxgen.errors import DriverError, ToolMissingError
    from ptxgen.launcher.device import GpuDevice

    try:
        GpuDevice.get()
    except (ToolMissingError, DriverError) as error:
        return str(error)
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--all"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with --all"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        reason = gpu_reason()
        if reason is not None:
            if item.config.getoption("--require-gpu"):
                pytest.fail(f"--require-gpu, but {reason}", pytrace=False)
            pytest.skip(f"no GPU: {reason[:60]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With --require-gpu, a GPU test that skips itself for any reason has failed."""
    report = yield
    if report.skipped and item.get_closest_marker("gpu") and item.config.getoption("--require-gpu"):
        slow = item.get_closest_marker("slow") and not item.config.getoption("--all")
        if not slow:
            report.outcome = "failed"
            report.longrepr = f"skipped under --require-gpu: {report.longrepr}"
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run in which every test was skipped is red."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus != pytest.ExitCode.OK or reporter is None or session.config.option.collectonly:
        return
    stats = reporter.stats
    ran = any(stats.get(kind) for kind in ("passed", "failed", "error", "xfailed", "xpassed"))
    if stats.get("skipped") and not ran:
        reporter.write_line("every test was skipped: that is no success", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(params=["emulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """A device that runs launches: one test body serves the emulator and the GPU."""
    if request.param == "gpu":
        from ptxgen.launcher.device import GpuDevice

        return GpuDevice.get()
    from ptxgen.emulator import EmulatorDevice

    return EmulatorDevice()


@pytest.fixture
def kernel_text() -> "KernelText":
    """`kernel_text("params")`: PTX of one of tests/kernels."""
    return KernelText()


class KernelText:
    """Reads the small PTX kernels of tests/kernels."""

    def __call__(self, name: str) -> str:
        path = Path(__file__).parent / "kernels" / f"{name}.ptx"
        return path.read_text(encoding="utf-8")

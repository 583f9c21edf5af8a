"""pytest plugin: the fixture `ptx_check`, by which any project's tests check its own kernels.

pytest loads it where ptxgen is installed; nothing else is imported until a test asks for it.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ptxgen.emulator.checking import Report
    from ptxgen.launch import Launch


class PtxCheck:
    """Checks a kernel, and fails the test with the findings if there is an error."""

    def __call__(
        self,
        ptx: "str | Path",
        launch: "Launch | Mapping[str, Any] | str | Path | Sequence[Launch]",
        buffers: Mapping[str, Any] | None = None,
        *,
        allow: Collection[str] = (),
        **options: Any,
    ) -> "Report":
        """The report of `ptxgen.emulator.check`, whose options these are.

        ptx: text, or the path of a file. launch: a Launch, what its JSON says as a dict, the path
        of a launch.json, or several Launches in stream order. buffers: contents by buffer name,
        bytes or arrays. allow: codes that are no failure here. The outputs are in
        `report.outputs`.

        Fails: the test, if there is an error that is not allowed, or the runs differ.
        """
        __tracebackhide__ = True
        report = self.report(ptx, launch, buffers, **options)
        wrong = [f for f in report.findings if f.severity == "error" and f.code not in allow]
        if wrong:
            pytest.fail("\n".join(map(str, wrong)), pytrace=False)
        return report

    def report(
        self,
        ptx: "str | Path",
        launch: "Launch | Mapping[str, Any] | str | Path | Sequence[Launch]",
        buffers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "Report":
        """The same without failing: for tests that expect a finding."""
        from ptxgen.emulator.checking import check

        text = ptx.read_text(encoding="utf-8") if isinstance(ptx, Path) else ptx
        return check(text, _launch(launch), buffers, **options)


@pytest.fixture(scope="session")
def ptx_check() -> PtxCheck:
    """Check PTX on ptxgen's emulator: `report = ptx_check(ptx, launch, {"a": array})`."""
    return PtxCheck()


def _launch(given: Any) -> Any:
    """What `check` takes, from what a test has at hand."""
    import json

    from ptxgen.launch import Launch

    if isinstance(given, Path):
        return Launch.from_json(given.read_text(encoding="utf-8"))
    if isinstance(given, str):
        return Launch.from_json(given)
    if isinstance(given, Mapping):
        return Launch.from_json(json.dumps(given))
    return given

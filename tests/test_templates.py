"""Templates print; they never compute."""

import re
from pathlib import Path

import jinja2.nodes
import pytest
from golden_kernels import golden_kernels

import ptxgen.renderer
from ptxgen.renderer import FILTERS, environment

TEMPLATES = Path(ptxgen.renderer.__file__).parents[1] / "templates"
NAMES = sorted(p.relative_to(TEMPLATES).as_posix() for p in TEMPLATES.rglob("*.j2"))
FORBIDDEN = (
    jinja2.nodes.Add, jinja2.nodes.Sub, jinja2.nodes.Mul, jinja2.nodes.Div, jinja2.nodes.FloorDiv,
    jinja2.nodes.Mod, jinja2.nodes.Pow, jinja2.nodes.Neg, jinja2.nodes.Assign,
    jinja2.nodes.AssignBlock, jinja2.nodes.Compare, jinja2.nodes.Include, jinja2.nodes.Extends,
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_template_neither_computes_nor_includes(name: str) -> None:
    env = environment()
    tree = env.parse((TEMPLATES / name).read_text(), name)
    assert not list(tree.find_all(FORBIDDEN))
    assert {f.name for f in tree.find_all(jinja2.nodes.Filter)} <= set(FILTERS)
    for call in tree.find_all(jinja2.nodes.Call):
        callee = call.node.node if isinstance(call.node, jinja2.nodes.Getattr) else call.node
        imported = {i.target for i in tree.find_all(jinja2.nodes.Import)}
        macros = list(tree.find_all(jinja2.nodes.Macro))
        arguments = {a.name for m in macros for a in m.args}
        assert isinstance(callee, jinja2.nodes.Name)
        assert callee.name in imported | {m.name for m in macros} | arguments


@pytest.mark.parametrize("name", NAMES)
def test_template_lines_fit_120_columns_but_for_one_instruction(name: str) -> None:
    for line in (TEMPLATES / name).read_text().splitlines():
        assert len(line) <= 120 or re.search(r"\{\{ |cp\.async", line), line


def test_every_part_and_macro_file_is_used() -> None:
    plans = ("kernels/*.py", "tcgen05_plans.py")
    files = [*TEMPLATES.rglob("*.j2")]
    files += [path for glob in plans for path in TEMPLATES.parent.glob(f"ptxgen/{glob}")]
    sources = "\n".join(p.read_text() for p in files)
    stems = [Path(name).name.removesuffix(".ptx.j2") for name in NAMES if "/" in name]
    families = ("scale", "value", "value_bias", "epilogue", "mainloop", "producer", "scheduler")
    unused = [
        s for s in stems if s not in sources.replace(f"## {s}", "")
        and not any(f'"{f}_{{' in sources and s.startswith(f"{f}_") for f in families)
    ]  # fmt: skip
    assert unused == []


@pytest.mark.parametrize("name", golden_kernels())
def test_every_field_of_a_plan_is_printed_by_some_template(name: str) -> None:
    sources = "\n".join(p.read_text() for p in TEMPLATES.rglob("*.j2"))
    assert set(golden_kernels()[name].plan().fields) <= set(re.findall(r"\.(\w+)", sources))

"""Who may import whom, read from the source, and what an import costs."""

import ast
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "ptxgen"

LAYERS = (
    {"errors", "files", "executors", "arch", "dtypes", "devices"},
    {
        "launch",
        "tensor_map_rules",
        "problem",
        "epilogue",
        "grouped_problem",
        "reference",
        "epilogue_reference",
        "grouped_reference",
        "ptx",
        "toolchain",
        "assembly_log",
        "rejections",
        "param_texts",
    },
    {
        "layout",
        "operand_maps",
        "config_rules",
        "operand_buffers",
        "raster",
        "warp_tiles",
        "warp_schedule",
        "warp_scales",
        "micro_kinds",
        "tmem",
        "tmem_chunks",
        "scale_tiles",
        "descriptors",
        "tcgen05_descriptors",
        "quantize",
        "packing",
        "operands",
        "grouped_operands",
    },
    {"plans", "tcgen05_config", "tcgen05_choice", "tcgen05_plans"},
    {"kernels"},
    {"renderer"},
    {
        "emission",
        "stated_configs",
        "images",
        "assembler",
        "cache",
        "cost_model",
        "tuning_table",
        "selection",
        "swap_selection",
        "inspection",
    },
    {"emulator", "launcher"},
    {"exact_model", "grouped_exact", "verification", "tuner", "benchmark"},
    {"diagnosis", "trial", "grouped_trial"},
    {
        "subjects",
        "selftest",
        "debugger",
        "launch_template",
        "mutation",
        "mutation_operators",
        "mutation_paths",
        "mutation_rules",
        "mutation_score",
        "recheck",
        "timeline",
        "pytest_plugin",
    },
    {"commands"},
    {"cli"},
    {"__main__"},
)
"""A part imports parts of its own layer and of those above it in this list."""

EMULATOR_SEES = {"errors", "dtypes", "launch", "tensor_map_rules", "ptx", "emulator"}
"""Never layout, descriptors, plans, kernels or renderer: a misreading would agree with itself."""

DEVICE_SEES = {
    "errors", "arch", "dtypes", "launch", "tensor_map_rules", "assembly_log", "launcher",
}  # fmt: skip
"""What the GPU side sees, except for the files that take whole problems."""
WHOLE_PROBLEM_FILES = {
    "ptxgen.launcher.epilogue_arguments",
    "ptxgen.launcher.gemm_call",
    "ptxgen.launcher.given_config",
    "ptxgen.launcher.grouped_arguments",
    "ptxgen.launcher.grouped_call",
    "ptxgen.launcher.placement",
    "ptxgen.launcher.scale_arguments",
}


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, through the links, by its dotted name."""
    found = {}
    for folder, _, files in os.walk(ROOT, followlinks=True):
        for path in (Path(folder) / name for name in files if name.endswith(".py")):
            parts = path.relative_to(ROOT.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imports(tree: ast.AST, at_module_level: bool) -> Iterator[str]:
    """Dotted names that a module imports; those under `if TYPE_CHECKING:` do not count."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports hide what is imported"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        elif not (at_module_level and isinstance(child, ast.FunctionDef)):
            yield from _imports(child, at_module_level)


@cache
def imports_of(name: str, at_module_level: bool = False) -> frozenset[str]:
    """What module `name` imports, each as the module that holds it where it is one of ours."""
    tree = ast.parse(modules()[name].read_text(encoding="utf-8"))
    resolved = set()
    for imported in _imports(tree, at_module_level):
        while imported.startswith("ptxgen") and imported not in modules():
            imported = imported.rpartition(".")[0]
        resolved.add(imported)
    return frozenset(resolved)


def part_of(name: str) -> str:
    """ptxgen.kernels.gemm_sm90 -> kernels."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


@cache
def reaches(name: str) -> frozenset[str]:
    """All modules of ours that importing `name` can load, through any number of steps."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        for imported in imports_of(current):
            if imported.startswith("ptxgen") and imported not in seen:
                seen.add(imported)
                waiting.append(imported)
    return frozenset(seen)


def test_every_module_has_a_layer() -> None:
    placed = set().union(*LAYERS) | {"", "templates"}
    assert {part_of(name) for name in modules()} <= placed


def test_no_module_imports_a_later_layer_than_its_own() -> None:
    level = {part: i for i, layer in enumerate(LAYERS) for part in layer}
    wrong = [
        f"{name} imports {imported}"
        for name in modules()
        if name != "ptxgen"  # its public names are loaded on use
        for imported in imports_of(name)
        if imported.startswith("ptxgen.")
        and level.get(part_of(imported), -1) > level.get(part_of(name), -1)
    ]
    assert wrong == []


def outside(part: str, allowed: set[str], except_for: Collection[str] = ()) -> list[str]:
    """Modules of `part` that reach, through any number of steps, a part that is not allowed."""
    return [
        f"{name} reaches {reached}"
        for name in sorted(modules())
        if part_of(name) == part and name not in except_for
        for reached in sorted(reaches(name))
        if part_of(reached) not in allowed | {""}
    ]


def test_the_emulator_sees_ptx_and_a_launch_and_nothing_else() -> None:
    assert outside("emulator", EMULATOR_SEES) == []


def test_the_device_side_of_the_launcher_sees_launches_only() -> None:
    assert outside("launcher", DEVICE_SEES, except_for=WHOLE_PROBLEM_FILES) == []


def test_cuda_is_imported_inside_functions() -> None:
    wrong = [
        name
        for name in modules()
        if any(m.split(".")[0] == "cuda" for m in imports_of(name, at_module_level=True))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("package", "parts"),
    [
        ("jinja2", {"renderer"}),
        ("click", {"cli", "commands"}),
        ("rich", {"commands"}),
        ("torch", set()),
        ("cupy", set()),
        ("launcher", set()),
        ("templates", set()),
    ],
)
def test_a_package_is_imported_by_its_own_parts_only(package: str, parts: set[str]) -> None:
    users = {
        part_of(name)
        for name in modules()
        if any(m.split(".")[0] == package for m in imports_of(name))
    }
    assert users <= parts


def loaded_after(code: str) -> set[str]:
    """Top-level packages that a fresh process has loaded after `code`."""
    report = f"{code}\nimport sys; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_ptxgen_loads_nothing_heavy() -> None:
    assert not loaded_after("import ptxgen") & {"numpy", "jinja2", "click", "rich", "cuda"}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["list", "kernels"]])
def test_a_command_that_computes_nothing_loads_no_numpy(arguments: list[str]) -> None:
    code = (
        "import sys, ptxgen.cli as c\n"
        f"sys.argv = ['ptxgen', *{arguments}]\n"
        "try: c.main()\n"
        "except SystemExit as e: assert e.code == 0\n"
    )
    heavy = {"numpy", "jinja2", "cuda"} | ({"rich"} if arguments == ["--help"] else set())
    assert not loaded_after(code) & heavy


@pytest.mark.parametrize(
    ("arguments", "limit_s"), [(["-c", "import ptxgen"], 0.2), (["-m", "ptxgen", "--help"], 0.3)]
)
def test_start_up_is_quick(arguments: list[str], limit_s: float) -> None:
    """The best of five runs, with a factor of two for a loaded machine."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    assert min(times) < 2 * limit_s


def test_public_names_are_all_there() -> None:
    import ptxgen

    assert all(hasattr(ptxgen, name) for name in ptxgen.__all__)


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import ptxgen

    with pytest.raises(AttributeError, match="no attribute 'gem'"):
        _ = ptxgen.gem

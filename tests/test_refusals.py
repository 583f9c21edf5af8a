"""What errors say, read from the source: what is wrong, what must hold, what was got, what to try.

Tested is the last alone, of errors of `KINDS` that are made where they are raised, and of messages
given to a function of `RAISING`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxgen import errors

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"ArgumentError", "ConfigError", "LaunchError", "OutputPathError", "ProblemError",
         "ToolMissingError", "UsageError"}  # fmt: skip
RAISING = ("_need", "refuse_given")
"""Functions that raise an error with a message that is their second argument."""
OURS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.PtxgenError)
}
ADVICE = re.compile(r"\btry\b|\bor use device=")


class Source:
    """One file's syntax, with the way from each node to the nodes around it."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around one, from the inside."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def messages(self) -> Iterator[ast.expr]:
        """The messages of refusals."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in RAISING:
                yield node.args[1]
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            of = next((f for f in self.around(node) if isinstance(f, ast.FunctionDef)), None)
            kind = ast.unparse(node.exc.func).split(".")[-1]
            if kind in KINDS and (of is None or of.name not in RAISING):
                yield node.exc.args[0]

    def helps(self, message: ast.expr) -> bool:
        """Whether a message says what to try, whatever way led to it."""
        match message:
            case ast.IfExp():
                return self.helps(message.body) and self.helps(message.orelse)
            case ast.BinOp():
                return self.helps(message.left) or self.helps(message.right)
            case ast.Call(func=ast.Name("not_one_of")):
                return True
            case ast.Call(func=ast.Name("str"), args=[ast.Name() as name]):
                return self._is_ours(name)
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.GeneratorExp() as several]):
                return self.helps(several.elt)
            case ast.Attribute(attr="reason"):
                return True
            case ast.Constant(str(text)):
                return bool(ADVICE.search(text))
            case ast.Name():
                texts = self._texts(message)
                return bool(texts) and all(self.helps(text) for text in texts)
            case ast.JoinedStr(
                values=[*_, ast.Constant(str(text)), ast.FormattedValue(value=ast.Name() as name)]
            ) if text.endswith(": ") and self._is_ours(name):
                return True
            case ast.JoinedStr():
                return any(self.helps(part) for part in message.values)
            case ast.FormattedValue():
                return self.helps(message.value)
        return False

    def _is_ours(self, name: ast.Name) -> bool:
        """Whether an `except` around it caught it, as an error of ours."""
        for node in self.around(name):
            if isinstance(node, ast.ExceptHandler) and node.name == name.id and node.type:
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                return {ast.unparse(kind).split(".")[-1] for kind in kinds} <= OURS
        return False

    def _texts(self, name: ast.Name) -> list[ast.expr]:
        """What a variable is given in its function, or else in the module."""
        for scope in self.around(name):
            if not isinstance(scope, ast.FunctionDef | ast.Module):
                continue
            given = [
                node.value
                for node in ast.walk(scope)
                if isinstance(node, ast.Assign)
                and any(isinstance(x, ast.Name) and x.id == name.id for x in node.targets)
            ]
            if given:
                return given
        return []


def test_a_refusal_says_what_to_try_or_passes_on_what_ours_said() -> None:
    """It has "try" or "or use device=" in its text, or in every text of a variable in it; or is by
    not_one_of; or is str(error) or f"...: {error}", where an `except` of only our errors caught it;
    or has the `reason` of a `Refused`, which is what a ConfigError said.
    """
    found = {path.resolve() for path in ROOT.glob("ptxgen/**/*.py")}
    silent = []
    for path in sorted(found | set(ROOT.glob("launcher/*.py"))):
        source = Source(path.read_text(encoding="utf-8"))
        silent += [
            f"{path.relative_to(ROOT)}:{message.lineno}"
            for message in source.messages()
            if not source.helps(message)
        ]
    assert silent == []


@pytest.mark.parametrize(
    ("text", "helps"),
    [
        ("raise ProblemError(f'm must be 1, got {m}; try 1')", True),
        ("raise ProblemError(f'm must be 1, got {m}')", False),
        ("raise errors.ProblemError(f'{message}')", False),
        ("hint = 'try 1' if m else 'try 2'\nraise ProblemError(f'm: {hint}')", True),
        ("hint = 'try 1' if m else ''\nraise ProblemError(f'm: {hint}')", False),
        ("raise ProblemError(not_one_of('m', m, (1, 2)))", True),
        ("try: f()\nexcept ConfigError as e: raise ProblemError(str(e)) from e", True),
        ("try: f()\nexcept (ConfigError, PtxError) as e: raise ProblemError(f'm: {e}')", True),
        ("try: f()\nexcept OSError as e: raise ProblemError(f'm: {e}') from e", False),
        ("try: f()\nexcept (ConfigError, OSError) as e: raise ProblemError(str(e))", False),
        ("raise ProblemError('m must be 1' + (' or 2' if n else ''))", False),
        ("raise ProblemError('m must be 1; try ' + ('1' if n else '2'))", True),
        ("refuse_given(('m',), 'is that of a gemm')", False),
        ("_need(m > 0, f'm must be positive, got {m}')", False),
        ("_need(m > 0, f'm must be positive, got {m}; try 1')", True),
    ],
)
def test_the_rule_knows_what_helps(text: str, helps: bool) -> None:
    source = Source(text)
    assert [source.helps(message) for message in source.messages()] == [helps]

"""PTX text to `Module`: modules, functions and scopes. Takes our text and other compilers'.

Source: PTX ISA 9.0, Directives and Syntax.
"""

from dataclasses import replace

from ptxgen.errors import PtxSyntaxError
from ptxgen.ptx.constants import integer
from ptxgen.ptx.declarations import (
    LINKAGES,
    SPACES,
    parameters,
    registers,
    skip_attribute,
    variables,
)
from ptxgen.ptx.instructions import InstructionReader
from ptxgen.ptx.lexer import Cursor, tokenize
from ptxgen.ptx.module import Function, Module, Operand, Symbol, Variable
from ptxgen.ptx.scopes import Names

_HEADER_DIRECTIVES = frozenset((
    "maxntid", "reqntid", "minnctapersm", "maxnctapersm", "maxnreg", "explicitcluster",
    "reqnctapercluster", "maxclusterrank", "noreturn", "abi_preserve", "abi_preserve_control",
    "blocksareclusters",
))  # fmt: skip


def parse(text: str) -> Module:
    """Read one PTX module.

    Raises: PtxSyntaxError with the line, what was expected and what came.
    """
    return _ModuleReader(tokenize(text)).read(text)


class _ModuleReader:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}
        self.visible: dict[str, Operand] = {}
        self.unresolved: dict[str, int] = {}
        """Names that were no labels -> line of their first use."""

    def read(self, text: str) -> Module:
        cursor = self.cursor
        cursor.expect(".version", "as the first directive")
        version = cursor.take()
        if not version.replace(".", "", 1).isdecimal():
            raise cursor.error("expected a version such as 8.0", cursor.position - 1)
        cursor.expect(".target", "as the second directive")
        targets = [cursor.identifier("an architecture such as sm_90a")]
        while cursor.accept(","):
            targets.append(cursor.identifier("a target option"))
        address_size = 64
        if cursor.accept(".address_size"):
            at = cursor.position
            address_size = integer(cursor, "32 or 64")
            if address_size not in (32, 64):
                raise cursor.error("expected 32 or 64", at)
        while cursor.word:
            self._top_level()
        for name, line in self.unresolved.items():
            if name not in self.functions and name not in self.variables:
                raise PtxSyntaxError(
                    f"line {line}: expected a declared register, variable, label or function, "
                    f"got {name!r}",
                    line,
                )
        return Module(
            version, targets[0], address_size, self.variables, self.functions, text,
            tuple(targets[1:]),
        )  # fmt: skip

    def _top_level(self) -> None:
        cursor = self.cursor
        if skip_line_information(cursor) or cursor.accept(";"):
            return
        line = cursor.line()
        linkage = ""
        while cursor.word in LINKAGES or cursor.word == ".attribute":
            if cursor.accept(".attribute"):
                skip_attribute(cursor)
            else:
                linkage = cursor.take()[1:]
        word = cursor.word
        if word.partition("::")[0] in SPACES:
            for variable in variables(cursor, linkage):
                self._declare(variable)
        elif word in (".entry", ".func"):
            self._function(linkage, line)
        elif word == ".alias":
            cursor.take()
            alias = cursor.identifier("an alias")
            cursor.expect(",", "after an alias")
            name = cursor.identifier("a function")
            cursor.expect(";", "after '.alias'")
            if name not in self.functions:
                raise cursor.error(f"expected a declared function as aliasee of {alias!r}")
            self.functions[alias] = self.functions[name]
        elif word == ".pragma":
            pragma(cursor)
        else:
            raise cursor.error("expected a variable, .entry or .func")

    def _declare(self, variable: Variable) -> None:
        earlier = self.variables.get(variable.name)
        if earlier is not None and "extern" not in (earlier.linkage, variable.linkage):
            raise self.cursor.error(f"expected a new name, {variable.name!r} is declared twice")
        if earlier is None or earlier.linkage == "extern":
            self.variables[variable.name] = variable
            self.visible[variable.name] = Symbol(variable.name)

    def _function(self, linkage: str, line: int) -> None:
        cursor = self.cursor
        is_entry = cursor.take() == ".entry"
        if cursor.accept(".attribute"):
            skip_attribute(cursor)
        returns = () if is_entry or cursor.word != "(" else parameters(cursor)
        name = cursor.identifier("a function name")
        params = parameters(cursor) if cursor.word == "(" else ()
        pragmas: list[str] = []
        directives = self._directives(pragmas)
        earlier = self.functions.get(name)
        if earlier is not None and not earlier.is_declaration and cursor.word == "{":
            raise cursor.error(f"expected a new name, function {name!r} is defined twice")
        is_declaration = cursor.accept(";")
        if is_declaration and earlier is not None and not earlier.is_declaration:
            return
        names = Names(self.visible, self.variables)
        reader = InstructionReader(cursor, names, self.variables)
        reader.pragmas += [(text, 0) for text in pragmas]
        if not is_declaration:
            names.open(cursor)
            for parameter in (*returns, *params):
                if parameter.is_register:
                    names.register(parameter.name, parameter.type, 1, cursor)
                else:
                    names.bind(parameter.name, Symbol(names.unique(parameter.name)), cursor)
            self._body(reader)
        self.functions[name] = Function(
            name, is_entry, params, returns, directives, names.registers, reader.variables,
            tuple(reader.body), reader.labels, line, linkage, is_declaration,
            names.targets, reader.prototypes, tuple(reader.pragmas),
        )  # fmt: skip

    def _directives(self, pragmas: list[str]) -> dict[str, tuple[int, ...]]:
        """Pass performance and linking directives, and pragmas, up to the body or the semicolon."""
        found: dict[str, tuple[int, ...]] = {}
        cursor = self.cursor
        while cursor.word not in ("{", ";"):
            if cursor.word == ".pragma":
                pragmas += pragma(cursor)
                continue
            if cursor.accept(".attribute"):
                skip_attribute(cursor)
                continue
            name = cursor.word[1:]
            if cursor.word[:1] != "." or name not in _HEADER_DIRECTIVES:
                raise cursor.error("expected a directive, '{' or ';' after a function header")
            cursor.take()
            values: list[int] = []
            if cursor.word[:1].isdigit():
                values.append(integer(cursor, "a number"))
                while cursor.accept(","):
                    values.append(integer(cursor, "a number"))
            found[name] = tuple(values)
        return found

    def _body(self, reader: InstructionReader) -> None:
        """Pass `{ ... }`, scopes inside it included."""
        cursor, names = self.cursor, reader.names
        tokens, read_instruction = cursor.tokens, reader.read
        cursor.expect("{", "before a function body")
        while names.depth:
            word = tokens[cursor.position]
            if not word:
                raise cursor.error("expected '}' to end the function body")
            if tokens[cursor.position + 1] == ":":
                self._label(reader)
            elif word[0] == ".":
                self._declaration(reader)
            elif word == "{":
                names.open(cursor)
                cursor.position += 1
            elif word == "}":
                cursor.position += 1
                reader.close_scope()
            elif word == ";":
                cursor.position += 1
            else:
                read_instruction()
        for name, line in reader.undeclared.items():
            self.unresolved.setdefault(name, line)

    def _label(self, reader: InstructionReader) -> None:
        """Pass `label:`, and the list or prototype that may follow."""
        cursor, names = self.cursor, reader.names
        label = names.label(cursor.identifier("a label"), cursor)
        cursor.take()
        if cursor.word in (".branchtargets", ".calltargets"):
            cursor.take()
            while True:
                line = cursor.line()
                names.add_target(label, cursor.identifier("a label or function"), line)
                if cursor.accept(";"):
                    return
                cursor.expect(",", "or ';' after a target")
        elif cursor.accept(".callprototype"):
            returns = () if cursor.accept("_") else parameters(cursor)
            cursor.expect("_", "as the name in a prototype")
            params = parameters(cursor) if cursor.word == "(" else ()
            while cursor.word in (".noreturn", ".abi_preserve", ".abi_preserve_control"):
                if cursor.take() != ".noreturn":
                    integer(cursor, "a number")
            cursor.expect(";", "after a prototype")
            reader.prototypes[label] = (returns, params)
        else:
            reader.labels[label] = len(reader.body)

    def _declaration(self, reader: InstructionReader) -> None:
        """Pass a declaration or directive inside a body."""
        cursor, names = self.cursor, reader.names
        if cursor.accept(".reg"):
            registers(cursor, names)
        elif skip_line_information(cursor):
            return
        elif cursor.word == ".pragma":
            reader.pragmas += [(text, len(reader.body)) for text in pragma(cursor)]
        else:
            linkage = cursor.take()[1:] if cursor.word in LINKAGES else ""
            if cursor.word.partition("::")[0] not in SPACES:
                raise cursor.error("expected a declaration, a directive or an instruction")
            for variable in variables(cursor, linkage):
                unique = names.unique(variable.name)
                names.bind(variable.name, Symbol(unique), cursor)
                reader.variables[unique] = replace(variable, name=unique)


def skip_line_information(cursor: Cursor) -> bool:
    """Pass `.loc`, `.file` or `.section`, if one comes.

    Raises: PtxSyntaxError if it does not end.
    """
    word = cursor.word
    if word == ".section":
        try:
            cursor.position = cursor.tokens.index("}", cursor.position) + 1
        except ValueError:
            raise cursor.error("expected '}' to end this section") from None
    elif word in (".loc", ".file"):
        cursor.take()
        while cursor.word[:1].isdigit() or cursor.word[:1] == '"':
            cursor.take()
        while cursor.accept(","):
            cursor.take()
            while cursor.word[:1].isdigit() or cursor.word == "+":
                cursor.take()
            if cursor.word.startswith("$L__info_string"):
                cursor.take()
                if cursor.accept("+"):
                    cursor.take()
    else:
        return False
    return True


def pragma(cursor: Cursor) -> tuple[str, ...]:
    """Pass `.pragma "a", "b";` and give its strings.

    Raises: PtxSyntaxError.
    """
    cursor.take()
    found: list[str] = []
    while True:
        text = cursor.word
        if text[:1] != '"' or len(text) < 2:
            raise cursor.error("expected a string after '.pragma'")
        found.append(cursor.take()[1:-1])
        if cursor.accept(";"):
            return tuple(found)
        cursor.expect(",", "or ';' after a string")

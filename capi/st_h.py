"""Reads st.h: what it holds, and no more of C. Stops at the first line that it does not understand, with its number.

capi/generate.py writes from this what other languages need. Tests read here what ctypes cannot tell, such as const.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True)
class Type:
    base: str  # "char", or the name of a type of the header
    const: bool = False  # of the base
    pointers: tuple[bool, ...] = ()  # innermost first: is this pointer itself const?


@dataclass(frozen=True)
class Variable:
    """A field of a struct, or a parameter."""

    name: str
    type: Type
    length: int = 0  # of an array; 0: it is none


@dataclass
class Constant:
    name: str
    spelling: str  # as in the header: "((size_t)-1)"
    value: int
    cast: str  # "size_t"; "" if there is none
    comment: str = ""
    group: str = ""  # the comment above it, if it begins a group


@dataclass
class Function:
    """Also the type of a callback."""

    name: str
    result: Type
    parameters: list[Variable]
    since: int = 0  # the version 2.x that it came with: "Since 2.x." is the last line of the comment directly above


@dataclass
class Header:
    constants: list[Constant] = field(default_factory=list)
    initialisers: dict[str, str] = field(default_factory=dict)  # macros that stand for { ... }, as they are spelled
    aliases: dict[str, Type] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    structs: dict[str, list[Variable]] = field(default_factory=dict)
    callbacks: dict[str, Function] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)

    def statuses(self) -> list[Constant]:
        return [c for c in self.constants if c.name == "ST_OK" or c.name.startswith("ST_E_")]


SCALARS = ("void", "char", "int", "size_t", "int32_t", "uint32_t", "int64_t", "uint64_t")
TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<comment>/\*.*?\*/) | (?P<directive>^\#(?:\\\n|(?!/\*)[^\n])*) | (?P<word>[A-Za-z_]\w*)
      | (?P<number>\d+) | (?P<mark>[{}()\[\],;*]|"C")""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"(?:\((?P<cast>\w+)\))?(?P<minus>-)?(?P<digits>0x[0-9A-Fa-f]+|0|[1-9]\d*)u?")


class Reader:
    def __init__(self, text: str, path: object) -> None:
        self.header, self.path, self.line = Header(), path, 1
        self.conditions: list[str] = []  # that have been opened by #if...
        self.guard = ""
        self.read(text)

    def fail(self, what: str) -> NoReturn:
        sys.exit(f"{self.path}:{self.line}: {what}; this line is not understood")

    def read(self, text: str) -> None:
        header, statement, cpp = self.header, [], []
        depth, position = 0, 0
        comment, comment_ends = "", 0
        defined = 0  # the line on which the last constant ends
        since, since_ends, begins = 0, 0, 0  # the version that a comment ends with, and on which lines
        has_date = False  # whether the last comment before a declaration tells a version
        while position < len(text):
            token = TOKEN.match(text, position)
            if not token:
                self.fail(f"what is {text[position]!r}?")
            kind, word = token.lastgroup, token[0]
            position = token.end()
            if kind == "space":
                pass
            elif kind == "comment":
                plain = " ".join(re.sub(r"^\s*\* ?", "", word[2:-2], flags=re.MULTILINE).split())
                if not statement:
                    dated = re.search(r"(?:^|\n)[ *]*Since 2\.(\d+)\.\s*$", word[2:-2])
                    since, since_ends = int(dated[1]) if dated else 0, self.line + word.count("\n")
                    has_date = re.search(r"Since 2\.\d", plain) is not None
                if defined == self.line:
                    header.constants[-1].comment = plain
                else:
                    comment, comment_ends = plain, self.line + word.count("\n")
            elif kind == "directive":
                if statement:
                    self.fail("a directive inside a declaration")
                known = len(header.constants)
                self.directive(" ".join(word.replace("\\\n", " ").split()), cpp)
                defined = self.line + word.count("\n") if len(header.constants) > known else 0
                if defined and comment_ends + 1 == self.line:
                    header.constants[-1].group = comment
            elif self.conditions[-1:] == ["__cplusplus"]:
                cpp.append(word)
            else:
                begins = begins if statement else self.line
                statement.append(word)
                depth += (word == "{") - (word == "}")
                if word == ";" and depth == 0:
                    known = len(header.functions)
                    self.declare(statement[:-1])
                    statement = []
                    if len(header.functions) > known and since_ends + 1 == begins:
                        header.functions[-1].since = since
                    if len(header.functions) > known and has_date and not header.functions[-1].since:
                        self.fail("'Since 2.N.' must be the last line of the comment that ends above its function")
                    has_date = False
            self.line += word.count("\n")
        if statement or self.conditions:
            self.fail("the header ends too early")
        names = [c.name for c in header.constants] + [*header.initialisers, *self.types()]
        names += [f.name for f in header.functions]
        if len(set(names)) < len(names):
            self.fail(f"declared twice: {sorted({name for name in names if names.count(name) > 1})}")

    def directive(self, text: str, cpp: list[str]) -> None:
        match text[1:].split():
            case ["include", "<stddef.h>" | "<stdint.h>"]:
                pass
            case ["ifndef", guard] if not self.conditions and not self.guard:
                self.guard = guard
                self.conditions.append(guard)
            case ["define", guard] if guard == self.guard:
                pass
            case ["ifdef", "__cplusplus"]:
                self.conditions.append("__cplusplus")
            case ["endif"] if self.conditions:
                if self.conditions.pop() == "__cplusplus" and cpp not in (["extern", '"C"', "{"], ["}"]):
                    self.fail(f"what is {' '.join(cpp)} for C++?")
                cpp.clear()
            case ["define", name, *value] if re.fullmatch(r"ST_[A-Z0-9_]+", name) and value:
                self.constant(name, " ".join(value))
            case _:
                self.fail(f"what is {text}?")

    def constant(self, name: str, spelling: str) -> None:
        if spelling.startswith("{") and spelling.endswith("}"):
            self.header.initialisers[name] = spelling
            return
        bare = spelling[1:-1] if spelling.startswith("(") and spelling.endswith(")") else spelling
        number = NUMBER.fullmatch(bare)
        if not number:
            self.fail(f"which number is {spelling}?")
        value = int(number["digits"], 0) * (-1 if number["minus"] else 1)
        self.header.constants.append(Constant(name, spelling, value, number["cast"] or ""))

    def types(self) -> list[str]:
        h = self.header
        return [*h.aliases, *h.opaque, *h.structs, *h.callbacks]

    def declare(self, words: list[str]) -> None:
        header = self.header
        callable_ = words[-1] == ")" and "(" in words
        opens = len(words) - 1 - words[::-1].index("(") if callable_ else len(words)
        inner = words[opens + 1 : -1]
        match words[:opens]:
            case ["typedef", "struct", tag, name] if tag == name and not callable_:
                header.opaque.append(name)
            case ["typedef", "struct", tag, "{", *fields, ";", "}", name] if tag == name and not callable_:
                if name in header.opaque:  # it was declared ahead
                    header.opaque.remove(name)
                header.structs[name] = [v for f in split(fields, ";") for v in self.variables(f)]
            case ["typedef", *result, "(", "*", name, ")"] if callable_:
                header.callbacks[name] = Function(name, self.type(result), self.parameters(inner))
            case ["typedef", *base, name] if not callable_:
                header.aliases[name] = self.type(base)
            case [*result, name] if callable_ and name.startswith("st_"):
                header.functions.append(Function(name, self.type(result), self.parameters(inner)))
            case _:
                self.fail(f"what is {' '.join(words)}?")

    def parameters(self, words: list[str]) -> list[Variable]:
        if words == ["void"]:
            return []
        kinds = [(self.type(p[:-1]), p[-1]) for p in split(words, ",")]
        return [Variable(name, kind) for kind, name in kinds]

    def variables(self, words: list[str]) -> list[Variable]:
        """`uint64_t a, b` and `char c[64]`."""
        first, *others = split(words, ",")
        arrays = first.index("[") if "[" in first else len(first)
        kind, names = first[: arrays - 1], [first[arrays - 1 :], *others]
        found = []
        for name in names:
            match name:
                case [name]:
                    found.append(Variable(name, self.type(kind)))
                case [name, "[", length, "]"] if length.isdigit():
                    found.append(Variable(name, self.type(kind), int(length)))
                case _:
                    self.fail(f"what is {' '.join(words)}?")
        return found

    def type(self, words: list[str]) -> Type:
        const, pointers, rest = False, [], list(words)
        if rest[:1] == ["const"]:
            const = bool(rest.pop(0))
        if not rest or rest[0] not in (*SCALARS, *self.types()):
            self.fail(f"which type is {' '.join(words)}?")
        base = rest.pop(0)
        for word in rest:
            if word == "*":
                pointers.append(False)
            elif word == "const" and pointers and not pointers[-1]:
                pointers[-1] = True
            else:
                self.fail(f"which type is {' '.join(words)}?")
        return Type(base, const, tuple(pointers))


def split(words: list[str], mark: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == mark:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def read(path: Path) -> Header:
    return Reader(path.read_text(), path).header

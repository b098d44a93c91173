"""_st_h.py against a C compiler and the library; status.py and dtypes.py against both."""

import ctypes
import subprocess
import sys

import libst
import pytest
from conftest import REPOSITORY
from libst import _abi, _st_h, dtypes

sys.path.insert(0, str(REPOSITORY / "capi"))
import generate
import st_h

INCLUDE = REPOSITORY / "capi" / "include"
HEADER = st_h.read(INCLUDE / "st" / "st.h")
STRUCTS = {name: getattr(_abi, "".join(part.capitalize() for part in name.split("_")[1:])) for name in HEADER.structs}


@pytest.mark.parametrize("status", list(libst.Status))
def test_library_names_statuses_alike(status):
    name = "ST_OK" if status == 0 else f"ST_E_{status.name}"
    assert _abi.st_status_name(status) == name.encode()


def test_dtypes_are_those_of_the_header():
    header = {c.name[9:]: c.value for c in HEADER.constants if c.name.startswith("ST_DTYPE_")}
    assert {name: number for number, name in dtypes.NAMES.items()} == header


@pytest.mark.parametrize("number", sorted(dtypes.NAMES))
def test_library_has_dtypes_alike(number):
    assert _abi.st_dtype_name(number) == dtypes.NAMES[number].encode()
    bits = _abi.st_dtype_bits(number)
    assert (bits < 8) == (number in dtypes.PACKED)
    if number not in dtypes.PACKED:
        assert dtypes.NUMPY[number].itemsize * 8 == bits
    parsed = ctypes.c_uint32()
    assert _abi.st_dtype_parse(dtypes.NAMES[number].encode(), _abi.ST_NTS, parsed) == 0
    assert parsed.value == number


def test_version_is_the_headers():
    expected = ".".join(str(getattr(_abi, f"ST_VERSION_{part}")) for part in ("MAJOR", "MINOR", "PATCH"))
    assert libst.version == libst.__version__ == expected


def run_c(folder, lines):
    """What a C program of these statements prints, by lines."""
    source, program = folder / "program.c", folder / "program"
    source.write_text(
        "#include <stdio.h>\n#include <st/st.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n"
    )
    subprocess.run(["cc", "-std=c99", f"-I{INCLUDE}", str(source), "-o", str(program)], check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()


def test_structs_have_the_layout_that_c_gives_them(tmp_path):
    lines, ours = [], []
    for c_name, struct in STRUCTS.items():
        lines.append(f'printf("{c_name} %zu\\n", sizeof({c_name}));')
        ours.append(f"{c_name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            size = f"sizeof((({c_name} *)0)->{field})"
            lines.append(f'printf("{c_name}.{field} %zu %zu\\n", offsetof({c_name}, {field}), {size});')
            descriptor = getattr(struct, field)
            ours.append(f"{c_name}.{field} {descriptor.offset} {descriptor.size}")
    assert len(STRUCTS) > 5 and run_c(tmp_path, lines) == ours


@pytest.mark.parametrize("c_name", sorted(STRUCTS))
def test_structs_miss_no_field(c_name):
    """No struct of the header has implicit padding, so fields that add up to its size are all there are."""
    struct = STRUCTS[c_name]
    assert sum(getattr(struct, field[0]).size for field in struct._fields_) == ctypes.sizeof(struct)


def test_constants_have_the_value_that_c_gives_them(tmp_path):
    lines = [f'printf("{c.name} %lld\\n", (long long)({c.name}));' for c in HEADER.constants]
    assert len(lines) > 50 and run_c(tmp_path, lines) == [f"{c.name} {getattr(_abi, c.name)}" for c in HEADER.constants]


def understood(tmp_path, text):
    path = tmp_path / "st.h"
    path.write_text(text)
    return st_h.read(path)


def test_the_reader_understands_what_the_header_may_come_to_hold(tmp_path):
    header = understood(
        tmp_path,
        '#ifndef ST_ST_H\n#define ST_ST_H\n#include <stdint.h>\n#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
        "/* The call. */\n#define ST_E_A 1u /* one,\n                      or more */\n#define ST_B (-1)\n"
        "#define ST_C ((size_t)-1)\n#define ST_D { 0, \\\n  1 }\n\n"
        "typedef struct st_c st_c;\ntypedef struct st_b st_b; /* declared ahead */\n"
        "typedef struct st_b { uint32_t struct_size, flags; const char *const *names; char text[8]; } st_b;\n"
        "typedef int (*st_d_fn)(void *user, const st_b *b);\n\n"
        "/* Since 2.1. */\nint32_t st_e(st_c **out, const char *const *names, /* n */ size_t n);\n\nvoid st_f(void);\n"
        "#ifdef __cplusplus\n}\n#endif\n#endif /* ST_ST_H */\n",
    )
    constants = [(c.name, c.value, c.cast, c.comment, c.group) for c in header.constants]
    assert constants == [
        ("ST_E_A", 1, "", "one, or more", "The call."),
        ("ST_B", -1, "", "", ""),
        ("ST_C", -1, "size_t", "", ""),
    ]
    assert (header.initialisers, header.opaque) == ({"ST_D": "{ 0, 1 }"}, ["st_c"])
    fields = [(v.name, v.type.base, v.type.const, v.type.pointers, v.length) for v in header.structs["st_b"]]
    assert fields == [
        ("struct_size", "uint32_t", False, (), 0),
        ("flags", "uint32_t", False, (), 0),
        ("names", "char", True, (True, False), 0),
        ("text", "char", False, (), 8),
    ]
    assert [p.type.base for p in header.callbacks["st_d_fn"].parameters] == ["void", "st_b"]
    assert [(f.name, len(f.parameters), f.since) for f in header.functions] == [("st_e", 3, 1), ("st_f", 0, 0)]


def test_a_function_is_dated_by_the_last_line_of_its_own_comment(tmp_path):
    header = understood(
        tmp_path,
        "/* A flag of it came later, since 2.3. */\nint st_a(void);\n\n"
        "/* It takes URLs,\n * since 2.4.\n * And files. */\nint st_b(void);\n\n"
        "/* Two.\n * Since 2.1. */\nint st_c(void);\nint st_d(void);\n\n"
        "/* A heading, since 2.2. */\n\nint st_e(int i /* Since 2.5. */);\n\n"
        "/* Since 2.2. */\nint\nst_f(void);\n",
    )
    assert {f.name: f.since for f in header.functions if f.since} == {"st_c": 1, "st_f": 2}


def test_no_name_leaves_its_node(tmp_path):
    header = understood(tmp_path, "int st_a(void);\n/* Since 2.1. */\nint st_b(void);\nint st_c(void);\n")
    assert generate.left(header, generate.version_script(header)) == []
    assert generate.left(header, "ST_2.0 {\n  global:\n    st_a;\n  local:\n    *;\n};\n") == []  # others are added
    script = "ST_2.0 {\n  global:\n    st_a;\n    st_b;\n    st_gone;\n  local:\n    *;\n};\n"
    assert generate.left(header, script) == ["st_b: of ST_2.0, and now ST_2.1", "st_gone: of ST_2.0, and now gone"]
    assert generate.left(generate.read(generate.HEADER), (REPOSITORY / "capi/st.map").read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "#define ST_A 1 + 2",
        "#define ST_A(x) x",
        "#define OTHER 1",
        "#undef ST_A",
        "#if 1\n#endif",
        "#define ST_A 1\n#define ST_A 2",
        "typedef struct st_a { unsigned b; } st_a;",
        "typedef struct st_a { int (*call)(void); } st_a;",
        "typedef struct st_a { char b[N]; } st_a;",
        "typedef struct st_a { int b; } st_other;",
        "typedef union st_a { int b; } st_a;",
        "enum st_a { ST_B };",
        "int other(void);",
        "int st_a();",
        "int st_a(st_b *b);",
        "int st_a(int (*call)(void));",
        "int st_a(int b, ...);",
        "static inline int st_a(void) { return 1; }",
        "int st_a(void)",
        "// int st_a(void);",
    ],
)
def test_the_reader_stops_at_what_it_does_not_understand(text, tmp_path):
    with pytest.raises(SystemExit, match=r"st\.h:\d+: "):
        understood(tmp_path, text + "\n")


def test_the_library_and_the_table_have_the_same_functions():
    assert [*_st_h.FUNCTIONS] == [f.name for f in HEADER.functions]
    assert all(hasattr(_abi, name) for name in _st_h.FUNCTIONS)


@pytest.mark.parametrize("comment", ["/* Any thread. Since 2.1. */\n", "/* Since 2.1 */\n", "/* Since 2.1. */\n\n"])
def test_a_date_that_would_not_count_is_refused(tmp_path, comment):
    with pytest.raises(SystemExit, match="Since 2.N."):
        understood(tmp_path, comment + "int st_a(void);\n")

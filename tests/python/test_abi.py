"""_abi.py, status.py and dtypes.py say what st.h says."""

import ctypes
import re
import subprocess

import libst
import pytest
from conftest import REPOSITORY
from libst import _abi, dtypes

INCLUDE = REPOSITORY / "capi" / "include"
TEXT = re.sub(r"/\*.*?\*/", "", (INCLUDE / "st" / "st.h").read_text(), flags=re.S)
CONSTANTS = {
    name: int(value) for name, value in re.findall(r"^#define (ST_[A-Z0-9_]+) \(?(-?\d+)u?\)?\s*$", TEXT, flags=re.M)
}
FUNCTIONS = {
    name: (result.strip(), [] if parameters.strip() == "void" else parameters.split(","))
    for result, name, parameters in re.findall(
        r"^([a-z][\w ]*[ *])(st_\w+)\(([^)]*)\);", re.sub(r"^typedef[^;{]*;", "", TEXT, flags=re.M), flags=re.M
    )
}
STRUCTS = {
    "st_error_info": _abi.ErrorInfo,
    "st_open_options": _abi.OpenOptions,
    "st_tensor": _abi.Tensor,
    "st_range": _abi.Range,
    "st_read_request": _abi.ReadRequest,
    "st_load_options": _abi.LoadOptions,
    "st_txn_options": _abi.TxnOptions,
    "st_metadata": _abi.Metadata,
    "st_plan": _abi.Plan,
    "st_diff_options": _abi.DiffOptions,
    "st_patch_options": _abi.PatchOptions,
    "st_delta_info": _abi.DeltaInfo,
    "st_save_options": _abi.SaveOptions,
    "st_report": _abi.Report,
    "st_verify_options": _abi.VerifyOptions,
    "st_recover_options": _abi.RecoverOptions,
    "st_io_info": _abi.IoInfo,
    "st_stats": _abi.Stats,
}


def test_header_was_read():
    assert len(FUNCTIONS) > 40 and len(CONSTANTS) > 70
    assert "st_open" in FUNCTIONS and CONSTANTS["ST_E_BUSY"] == 11


def test_statuses_are_those_of_the_header():
    header = {"OK": CONSTANTS["ST_OK"]}
    header.update({name[5:]: value for name, value in CONSTANTS.items() if name.startswith("ST_E_")})
    assert {status.name: int(status) for status in libst.Status} == header


@pytest.mark.parametrize("status", list(libst.Status))
def test_library_names_statuses_alike(status):
    name = "ST_OK" if status == 0 else f"ST_E_{status.name}"
    assert _abi.st_status_name(status) == name.encode()


def test_dtypes_are_those_of_the_header():
    header = {name[9:]: value for name, value in CONSTANTS.items() if name.startswith("ST_DTYPE_")}
    assert {name: number for number, name in dtypes.NAMES.items()} == header


@pytest.mark.parametrize("number", sorted(dtypes.NAMES))
def test_library_has_dtypes_alike(number):
    assert _abi.st_dtype_name(number) == dtypes.NAMES[number].encode()
    bits = _abi.st_dtype_bits(number)
    assert (bits < 8) == (number in dtypes.PACKED)
    if number not in dtypes.PACKED:
        assert dtypes.NUMPY[number].itemsize * 8 == bits
    parsed = ctypes.c_uint32()
    assert _abi.st_dtype_parse(dtypes.NAMES[number].encode(), parsed) == 0
    assert parsed.value == number


def test_other_constants_are_those_of_the_header():
    others = {name: value for name, value in CONSTANTS.items() if not re.match(r"ST_(OK|E_|DTYPE_|VERSION_)", name)}
    assert others and {name: getattr(_abi, name, None) for name in others} == others
    assert {name for name in dir(_abi) if name.startswith("ST_")} == set(others)


def test_version_is_the_headers():
    expected = ".".join(str(CONSTANTS[f"ST_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH"))
    assert libst.version == libst.__version__ == expected


def test_structs_have_the_headers_layout(tmp_path):
    """Sizes and offsets, as a C compiler sees them."""
    lines = []
    for c_name, struct in STRUCTS.items():
        lines.append(f'printf("{c_name} %zu\\n", sizeof({c_name}));')
        for field in struct._fields_:
            where = f"offsetof({c_name}, {field[0]})"
            size = f"sizeof((({c_name} *)0)->{field[0]})"
            lines.append(f'printf("{c_name}.{field[0]} %zu %zu\\n", {where}, {size});')
    source = tmp_path / "layout.c"
    source.write_text("#include <stdio.h>\n#include <st/st.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    program = tmp_path / "layout"
    subprocess.run(["cc", "-std=c99", f"-I{INCLUDE}", str(source), "-o", str(program)], check=True)
    compiled = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout

    ours = []
    for c_name, struct in STRUCTS.items():
        ours.append(f"{c_name} {ctypes.sizeof(struct)}")
        for field in struct._fields_:
            descriptor = getattr(struct, field[0])
            ours.append(f"{c_name}.{field[0]} {descriptor.offset} {descriptor.size}")
    assert compiled.splitlines() == ours


@pytest.mark.parametrize("c_name", sorted(STRUCTS))
def test_structs_miss_no_field(c_name):
    """No struct of the header has implicit padding, so fields that add up to its size are all there are."""
    struct = STRUCTS[c_name]
    assert sum(getattr(struct, field[0]).size for field in struct._fields_) == ctypes.sizeof(struct)


def test_every_struct_of_the_header_is_declared():
    assert set(re.findall(r"^typedef struct (st_\w+) \{", TEXT, flags=re.M)) == set(STRUCTS)


def test_every_function_of_the_header_is_declared():
    assert {name for name in dir(_abi) if name.startswith("st_")} == set(FUNCTIONS)


SCALARS = {
    "size_t": ctypes.c_size_t,
    "uint32_t": ctypes.c_uint32,
    "st_dtype": ctypes.c_uint32,
    "st_status": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "st_progress_fn": _abi.progress_fn,
    "st_report_fn": _abi.report_fn,
    "void": None,
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_take_and_answer_what_the_header_says(name):
    result, parameters = FUNCTIONS[name]
    function = getattr(_abi, name)
    if "*" in result:
        assert function.restype is ctypes.c_char_p
    else:
        assert function.restype is SCALARS[result]
    assert len(function.argtypes) == len(parameters)
    for parameter, ours in zip(parameters, function.argtypes):
        kind = re.sub(r"\w+$", "", parameter).replace("const", "").strip()
        if kind.endswith("*"):
            pointer = ours in (ctypes.c_char_p, ctypes.c_void_p) or hasattr(ours, "contents")
            assert pointer, parameter
            struct = STRUCTS.get(kind[:-1].strip())
            if struct is not None and ours is not ctypes.c_void_p:
                assert ours._type_ is struct, parameter
        else:
            assert ours is SCALARS[kind], parameter

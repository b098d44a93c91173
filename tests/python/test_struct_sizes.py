"""Every struct of st.h that begins with struct_size, given to every function that takes one: as an older caller has it,
smaller, and as one of a version to come has it, larger. Structs and functions are read from the header; CALLS says only
how each function is reached, and a function that it lacks is an error."""

import ctypes
import filecmp
import shutil

import pytest
from conftest import raw_file
from libst import _abi
from libst._sized import sized
from test_abi import HEADER, STRUCTS

OK, INVALID_ARGUMENT, UNSUPPORTED = 0, 1, 4
FILL = 0xAB

# A source is no option: it needs a function that reads it. tests/unit/capi/source_test.cpp has its sizes.
SIZED = {
    name: struct for name, struct in STRUCTS.items() if struct._fields_[0][0] == "struct_size" and name != "st_source"
}


def parameters_of_sized_structs():
    """(function, struct, is it an option?) of the header."""
    for function in HEADER.functions:
        for parameter in function.parameters:
            if parameter.type.base in SIZED:
                yield function.name, parameter.type.base, parameter.type.const


OPTIONS = sorted((function, struct) for function, struct, is_option in parameters_of_sized_structs() if is_option)
RESULTS = sorted((function, struct) for function, struct, is_option in parameters_of_sized_structs() if not is_option)


class Scene:
    """What the functions are called on, and how. A call answers the status; what it made, it frees."""

    def __init__(self, folder):
        self.path = str(folder / "model.safetensors").encode()
        self.new = str(folder / "new.safetensors").encode()
        with open(self.path, "wb") as file:
            file.write(raw_file([("a", "U8", [4], b"abcd")]))
        self.tuned, self.delta = self.path + b".tuned", self.path + b".delta"
        with open(self.tuned, "wb") as file:
            file.write(raw_file([("a", "U8", [4], b"efgh")]))
        assert _abi.st_delta_create(self.path, self.tuned, self.delta, None) == OK
        # Without a mapping, so that nothing is resident at one time and not at another.
        options = sized(_abi.OpenOptions, flags=_abi.ST_OPEN_READ_WRITE, map=_abi.ST_MAP_NONE)
        self.file = ctypes.c_void_p()
        assert _abi.st_open(self.path, options, self.file) == OK
        self.txn = ctypes.c_void_p()
        assert _abi.st_txn_begin(self.file, None, self.txn) == OK

    def apply(self, options=None, done=None):
        base = self.path + b".base"
        shutil.copyfile(self.path, base)
        return self.applied(base, _abi.st_delta_apply(base, self.delta, options, done))

    def apply_by_handle(self, options=None, done=None):
        base, file = self.path + b".base", ctypes.c_void_p()
        shutil.copyfile(self.path, base)
        assert _abi.st_open(base, sized(_abi.OpenOptions, flags=_abi.ST_OPEN_READ_WRITE), file) == OK
        status = _abi.st_apply_delta(file, self.delta, options, done)
        _abi.st_close(file)
        return self.applied(base, status)

    def applied(self, base, status):
        """What is refused has changed nothing."""
        assert filecmp.cmp(base, self.tuned if status == OK else self.path, shallow=False)
        return status

    def reshard(self, options):
        folder = self.path + b".shards"
        shutil.rmtree(folder, ignore_errors=True)
        return _abi.st_reshard(self.path, folder, 1 << 20, options)

    def close(self):
        _abi.st_txn_free(self.txn)
        _abi.st_close(self.file)

    def open(self, options):
        file = ctypes.c_void_p()
        status = _abi.st_open(self.path, options, file)
        _abi.st_close(file)
        return status

    def open_source(self, options):
        with open(self.path, "rb") as f:
            content = f.read()

        def read(user, ranges, n):
            for part in ranges[:n]:
                ctypes.memmove(part.dst, content[part.offset : part.offset + part.nbytes], part.nbytes)
            return 0

        source = sized(_abi.Source, size=len(content), read=_abi.source_read_fn(read))
        file = ctypes.c_void_p()
        status = _abi.st_open_source(source, options, file)
        _abi.st_close(file)
        return status

    def begin(self, options):
        txn = ctypes.c_void_p()
        status = _abi.st_txn_begin(self.file, options, txn)
        _abi.st_txn_free(txn)
        return status

    def read_many(self, options):
        room = ctypes.create_string_buffer(4)
        request = _abi.ReadRequest(dst=ctypes.addressof(room), dst_size=4)
        status = _abi.st_read_many(self.file, ctypes.byref(request), 1, options)
        assert room.raw == (b"abcd" if status == OK else bytes(4))
        return status

    def writer_open(self, options):
        writer = ctypes.c_void_p()
        status = _abi.st_writer_open(self.new, None, 0, None, 0, options, writer)
        _abi.st_writer_free(writer)
        return status


CALLS = {
    "st_apply_delta": Scene.apply_by_handle,
    "st_compact": lambda s, options: _abi.st_compact(s.path, options),
    "st_delta_apply": Scene.apply,
    "st_delta_create": lambda s, options: _abi.st_delta_create(s.path, s.tuned, s.new, options),
    "st_delta_describe": lambda s, out: _abi.st_delta_describe(s.delta, out),
    "st_delta_merge": lambda s, options: _abi.st_delta_merge(s.path, (ctypes.c_char_p * 1)(s.delta), 1, s.new, options),
    "st_file_io_info": lambda s, out: _abi.st_file_io_info(s.file, out),
    "st_file_stats": lambda s, out: _abi.st_file_stats(s.file, out),
    "st_join": lambda s, options: _abi.st_join(s.path, s.new, options),
    "st_last_error_info": lambda s, out: _abi.st_last_error_info(out),
    "st_load": lambda s, options: _abi.st_load(s.file, None, 0, options),
    "st_open": Scene.open,
    "st_open_source": Scene.open_source,
    "st_prefetch": lambda s, options: _abi.st_prefetch(s.file, None, 0, options),
    "st_read_many": Scene.read_many,
    "st_recover": lambda s, options: _abi.st_recover(s.path, options),
    "st_reshard": Scene.reshard,
    "st_save": lambda s, options: _abi.st_save(s.new, None, 0, None, 0, options),
    "st_shard_io_info": lambda s, out: _abi.st_shard_io_info(s.file, 0, out),
    "st_txn_begin": Scene.begin,
    "st_txn_plan": lambda s, out: _abi.st_txn_plan(s.txn, out),
    "st_verify": lambda s, options: _abi.st_verify(s.path, options),
    "st_writer_open": Scene.writer_open,
}
FILLED = {
    **CALLS,
    "st_apply_delta": lambda s, out: s.apply_by_handle(done=out),
    "st_delta_apply": lambda s, out: s.apply(done=out),
}
CHANGES_MEANWHILE = {"st_plan": ["space_free"]}


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path)
    yield scene
    scene.close()


class Room:
    """A caller's struct of any size, in memory that is filled behind it."""

    def __init__(self, struct, size):
        self.bytes = (ctypes.c_ubyte * (ctypes.sizeof(struct) + 256))(*[FILL] * (ctypes.sizeof(struct) + 256))
        self.pointer = ctypes.cast(self.bytes, ctypes.POINTER(struct))
        self.pointer[0].struct_size = size

    def __getitem__(self, part):
        return bytes(self.bytes[part])


def zeroed(name, size):
    """A whole set-up, as a caller of that size makes one: zeros and the size. FILL follows."""
    room = Room(SIZED[name], 0)
    ctypes.memset(room.bytes, 0, size)
    room.pointer[0].struct_size = size
    return room


WIDTHS = {"char": 1, "int": 4, "int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8}


def padding_behind(fields, pointer, widest):
    """Bytes that a compiler adds behind the last of them, where pointers have `pointer` bytes and no type needs a
    multiple of more than `widest`."""

    def width(of):
        base = HEADER.aliases.get(of.base, of)
        is_pointer = of.pointers or base.base == "size_t" or base.base in HEADER.callbacks
        return pointer if is_pointer else WIDTHS[base.base]

    end, largest = 0, 1
    for field in fields:
        each = width(field.type)
        align = min(each, widest)
        largest = max(largest, align)
        end += -end % align + each * max(field.length, 1)
    return -end % largest


@pytest.mark.parametrize("pointer, widest", [(8, 8), (4, 8), (4, 4)], ids=["64 bits", "32-bit ARM", "i386"])
def test_a_later_field_changes_the_size_on_every_target(pointer, widest):
    sized_structs = {name: fields for name, fields in HEADER.structs.items() if fields[0].name == "struct_size"}
    assert len(sized_structs) > len(SIZED)
    padded = {name: padding_behind(fields, pointer, widest) for name, fields in sized_structs.items()}
    assert padded == dict.fromkeys(sized_structs, 0)


def test_the_header_was_read():
    assert len(SIZED) >= 10 and ("st_open", "st_open_options") in OPTIONS and ("st_file_stats", "st_stats") in RESULTS


def test_every_function_that_takes_such_a_struct_is_called_here():
    assert {function for function, _ in OPTIONS + RESULTS} == set(CALLS)


def test_every_such_struct_is_given_to_a_function_or_to_a_callback():
    given_to_callbacks = {p.type.base for f in HEADER.callbacks.values() for p in f.parameters} & SIZED.keys()
    assert {struct for _, struct in OPTIONS + RESULTS} | given_to_callbacks == set(SIZED)
    assert given_to_callbacks == {"st_report"}


@pytest.mark.parametrize("function, name", OPTIONS)
class TestOptions:
    def test_that_are_zero_are_a_whole_set_up_also_of_an_older_caller(self, scene, function, name):
        assert CALLS[function](scene, None) == OK
        for size in range(4, ctypes.sizeof(SIZED[name]) + 1):
            assert CALLS[function](scene, zeroed(name, size).pointer) == OK, size  # FILL follows: it is not read

    def test_without_a_size_are_refused(self, scene, function, name):
        for size in range(4):
            assert CALLS[function](scene, Room(SIZED[name], size).pointer) == INVALID_ARGUMENT, size

    def test_of_a_newer_caller_must_be_zero_where_they_are_not_known(self, scene, function, name):
        known = ctypes.sizeof(SIZED[name])
        for more in (1, 8, 24):
            assert CALLS[function](scene, zeroed(name, known + more).pointer) == OK, more
            for at in range(known, known + more):
                room = zeroed(name, known + more)
                room.bytes[at] = 1
                assert CALLS[function](scene, room.pointer) == UNSUPPORTED, (more, at)


@pytest.mark.parametrize("function, name", RESULTS)
def test_results_fill_no_more_than_the_callers_size(scene, function, name):
    struct = SIZED[name]
    known = ctypes.sizeof(struct)
    _abi.st_open(b"/no/such/file", None, ctypes.c_void_p())  # an error, for st_last_error_info to tell
    for size in range(4):
        room = Room(struct, size)
        # A failure has its own sentence, which st_last_error_info would then tell: ask for it anew.
        assert FILLED[function](scene, room.pointer) == INVALID_ARGUMENT
        assert room[4:] == bytes([FILL]) * (len(room.bytes) - 4), size

    def filled(size):
        room = Room(struct, size)
        assert FILLED[function](scene, room.pointer) == OK, size
        assert room.pointer[0].struct_size == size
        for field in CHANGES_MEANWHILE.get(name, []):
            place = getattr(struct, field)
            for at in range(place.offset, min(place.offset + place.size, size)):
                room.bytes[at] = 0
        return room

    whole = filled(known)
    assert whole[4:known] != bytes([FILL]) * (known - 4)
    for size in range(4, known + 24):
        room = filled(size)
        filled_of_it = min(size, known)
        assert room[4:filled_of_it] == whole[4:filled_of_it], size
        assert room[filled_of_it:size] == bytes(size - filled_of_it), size
        assert room[size:] == bytes([FILL]) * (len(room.bytes) - size), size


def test_reports_say_how_much_of_them_is_filled(scene):
    seen = []

    def note(_user, report):
        seen.append((report[0].struct_size, report[0].reserved0, report[0].reserved1))
        return 0

    with open(scene.path, "ab") as file:
        file.write(b"rubbish")
    options = sized(_abi.VerifyOptions, report=_abi.report_fn(note))
    assert _abi.st_verify(scene.path, options) != OK
    assert seen and set(seen) == {(ctypes.sizeof(_abi.Report), 0, 0)}

"""The malformed corpus: one small file for every way to break the format, and the valid files next to each edge.

A case says what is peculiar about the file (its name), which status `st_open` must answer, and why.
`ST_OK` means that the reference reader (safetensors 0.8) and libst both accept it; any other status
means that both refuse it. The few cases where libst is stricter by design stand in EXPLAINED.

    python corpus.py             print the table
    python corpus.py DIRECTORY   also write the files, as DIRECTORY/<case>.safetensors
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

MAX_HEADER = 100_000_000

# Bits per element, in the order of the reference.
DTYPES = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

# libst refuses what the reference accepts only here. Nothing else may be added without a line in DESIGN.md.
EXPLAINED = {
    "duplicate_tensor_name": "a name that stands twice hides a tensor; the reference keeps the last one",
    "duplicate_tensor_name_via_escape": "the same, with the second name spelled with an escape",
    "duplicate_tensor_name_identical": "the same, with two equal entries",
    "duplicate_empty_tensor_name": "the same, with the empty name",
    "duplicate_tensor_name_hides_hole": "the hidden entry alone would be invalid; the reference never looks at it",
}


@dataclass(frozen=True)
class Case:
    name: str  # what is peculiar
    status: str  # what st_open answers
    why: str
    make: Callable[[], bytes]  # the file; a function, for two of them are 100 MB

    def bytes(self) -> bytes:
        return self.make()


CASES: dict[str, Case] = {}


def add(name: str, status: str, content: bytes | Callable[[], bytes], why: str) -> None:
    assert name not in CASES, name
    CASES[name] = Case(name, status, why, content if callable(content) else lambda: content)


# ------------------------------------------------------------------ how files are spelled


def file(header: str | bytes, data: bytes | int = 0, n: int | None = None) -> bytes:
    """A file from the text of its header. `data` is bytes, or a number of zero bytes; n overrides the length field."""
    if isinstance(header, str):
        header = header.encode("utf-8", "surrogatepass")
    if isinstance(data, int):
        data = bytes(data)
    return struct.pack("<Q", len(header) if n is None else n) + header + data


def info(dtype: str = "F32", shape: object = (1,), offsets: object = (0, 4)) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def tensors(entries: dict, data: bytes | int = 0) -> bytes:
    return file(json.dumps(entries, separators=(",", ":")), data)


def one(
    shape: str = "[1]", offsets: str = "[0,4]", dtype: str = '"F32"', more: str = "", data: bytes | int = 4
) -> bytes:
    """A file of one tensor "a", from the raw JSON text of its fields."""
    return file(f'{{"a":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}{more}}}}}', data)


def top(entry: str, data: bytes | int = 4) -> bytes:
    """A file of one tensor "a", from the raw JSON text of its entry."""
    return file(f'{{"a":{entry}}}', data)


A = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
ONE = "{" + A + "}"
ENTRY = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


# fmt: off
# ------------------------------------------------------------------ the frame: length, header, end

add("file_empty", "ST_E_HEADER_TOO_SMALL", b"", "not even a length")
add("file_7_bytes", "ST_E_HEADER_TOO_SMALL", b"\x02" + bytes(6), "the length itself is cut")
add("file_only_length_0", "ST_E_HEADER_JSON", bytes(8), "n = 0: an empty text is not JSON")
add("header_length_0_with_data", "ST_E_HEADER_JSON", file("", 16), "n = 0, whatever follows")
add("header_length_1", "ST_E_HEADER_JSON", file("{"), "n = 1: no object fits")
add("header_length_1_space", "ST_E_HEADER_JSON", file(" "), "blank header")
add("header_length_beyond_file", "ST_E_HEADER_TRUNCATED", file(ONE, 4, n=1000), "n reaches past the end of the file")
add("header_length_one_too_long", "ST_E_HEADER_TRUNCATED", file("{}", n=3), "n is one more than there is")
add("header_cut", "ST_E_HEADER_TRUNCATED", file(ONE)[:30], "the file ends in the middle of its header")
add("header_length_2_63", "ST_E_HEADER_TOO_LARGE", file(ONE, 4, n=1 << 63), "negative if read as signed")
add("header_length_2_64_minus_1", "ST_E_HEADER_TOO_LARGE", file(ONE, 4, n=(1 << 64) - 1), "8 + n wraps around")
add("header_length_2_64_minus_8", "ST_E_HEADER_TOO_LARGE", file(ONE, 4, n=(1 << 64) - 8), "8 + n wraps to 0")
add("header_length_2_32_plus", "ST_E_HEADER_TOO_LARGE", file(ONE, 4, n=(1 << 32) + len(ONE)), "right in the low 32 bits")
add("header_length_100000001_short_file", "ST_E_HEADER_TOO_LARGE", file(ONE, 4, n=MAX_HEADER + 1), "over the limit comes before truncated")
add("header_length_100000000_short_file", "ST_E_HEADER_TRUNCATED", file(ONE, 4, n=MAX_HEADER), "at the limit, but not there")
add("header_length_big_endian", "ST_E_HEADER_TOO_LARGE", struct.pack(">Q", len(ONE)) + ONE.encode() + bytes(4), "the length is little-endian")
add("header_100000000_bytes", "ST_OK", lambda: file(ONE.encode().ljust(MAX_HEADER), 4), "exactly the limit, mostly padding")
add("header_100000001_bytes", "ST_E_HEADER_TOO_LARGE", lambda: file(ONE.encode().ljust(MAX_HEADER + 1), 4), "one byte over the limit")
add("data_one_byte_short", "ST_E_TRUNCATED", file(ONE, 3), "the last tensor is cut")
add("data_missing", "ST_E_TRUNCATED", file(ONE, 0), "no data at all")
add("data_one_byte_long", "ST_E_TRAILING_DATA", file(ONE, 5), "a byte behind the last tensor")
add("empty_model_trailing_byte", "ST_E_TRAILING_DATA", file("{}", 1), "a byte in a file without tensors")
add("only_metadata_trailing_byte", "ST_E_TRAILING_DATA", file('{"__metadata__":{"k":"v"}}', 1), "the same with metadata")
add("not_safetensors_pickle", "ST_E_HEADER_TOO_LARGE", b"PK\x03\x04\x00\x00\x08\x08" + bytes(64), "a PyTorch zip file")
add("not_safetensors_gguf", "ST_E_HEADER_TOO_LARGE", b"GGUF\x03\x00\x00\x00\x01" + bytes(64), "a GGUF file")
add("not_safetensors_json", "ST_E_HEADER_TOO_LARGE", ONE.encode() + bytes(16), "JSON without the length in front")

# ------------------------------------------------------------------ padding and whitespace

add("padding_spaces", "ST_OK", file(ONE + " " * 13, 4), "as every writer pads")
add("padding_newline", "ST_OK", file(ONE + "\n", 4), "JSON whitespace behind the object")
add("padding_tab_cr", "ST_OK", file(ONE + "\t\r\n ", 4), "the other whitespace")
add("padding_nul", "ST_E_HEADER_JSON", file(ONE + "\0\0\0", 4), "NUL is not whitespace")
add("padding_form_feed", "ST_E_HEADER_JSON", file(ONE + "\x0c", 4), "nor is form feed")
add("padding_no_break_space", "ST_E_HEADER_JSON", file(ONE + "\u00a0", 4), "nor is U+00A0")
add("leading_whitespace", "ST_OK", file(" \n\t\r" + ONE, 4), "the reference does not insist on a brace first")
add("whitespace_everywhere", "ST_OK", file(' { "a" : { "dtype" : "F32" ,\n"shape"\t: [ 1 ] , "data_offsets" :[ 0 , 4 ] } } ', 4), "pretty-printed")
add("whitespace_vertical_tab", "ST_E_HEADER_JSON", file("{\x0b" + A + "}", 4), "U+000B is not JSON whitespace")
add("byte_order_mark", "ST_E_HEADER_JSON", file("\ufeff" + ONE, 4), "valid UTF-8, not JSON")

# ------------------------------------------------------------------ UTF-8

def utf8(name: bytes) -> bytes:
    return file(b'{"' + name + b'":' + ENTRY.encode() + b"}", 4)


add("utf8_overlong", "ST_E_HEADER_UTF8", utf8(b"\xc0\xaf"), "'/' in two bytes")
add("utf8_overlong_nul", "ST_E_HEADER_UTF8", utf8(b"\xc0\x80"), "modified UTF-8")
add("utf8_surrogate", "ST_E_HEADER_UTF8", utf8(b"\xed\xa0\x80"), "U+D800 encoded (CESU-8, WTF-8)")
add("utf8_beyond_10ffff", "ST_E_HEADER_UTF8", utf8(b"\xf4\x90\x80\x80"), "U+110000")
add("utf8_cut", "ST_E_HEADER_UTF8", utf8(b"\xe2\x82"), "two of three bytes")
add("utf8_lone_continuation", "ST_E_HEADER_UTF8", utf8(b"\x80"), "a continuation byte alone")
add("utf8_latin1", "ST_E_HEADER_UTF8", utf8("gewöhnlich".encode("latin-1")), "another encoding")
add("utf8_byte_ff", "ST_E_HEADER_UTF8", utf8(b"\xff"), "never in UTF-8")
add("utf8_error_in_padding", "ST_E_HEADER_UTF8", file(ONE.encode() + b" \xff", 4), "an error behind the object")
add("utf8_cut_at_end_of_header", "ST_E_HEADER_UTF8", file(ONE.encode() + b"\xe2\x82", 4), "a character that continues into the data")
add("utf8_highest_character", "ST_OK", utf8("\U0010ffff".encode()), "U+10FFFF")
add("utf8_noncharacter", "ST_OK", utf8("\uffff".encode()), "U+FFFF is legal UTF-8")
add("utf16_header", "ST_E_HEADER_UTF8", file(ONE.encode("utf-16"), 4), "UTF-16 with a byte order mark")

# ------------------------------------------------------------------ JSON

add("json_empty_object", "ST_OK", file("{}"), "a model without tensors")
add("json_trailing_comma", "ST_E_HEADER_JSON", file("{" + A + ",}", 4), "not JSON")
add("json_trailing_comma_in_shape", "ST_E_HEADER_JSON", one(shape="[1,]"), "not JSON")
add("json_leading_comma", "ST_E_HEADER_JSON", file("{," + A + "}", 4), "not JSON")
add("json_missing_comma", "ST_E_HEADER_JSON", one(more=' "x":1'), "not JSON")
add("json_missing_colon", "ST_E_HEADER_JSON", file('{"a"' + ENTRY + "}", 4), "not JSON")
add("json_unclosed", "ST_E_HEADER_JSON", file(ONE[:-1], 4), "the last brace is missing")
add("json_unclosed_string", "ST_E_HEADER_JSON", file('{"a', 0), "the text ends inside a string")
add("json_extra_brace", "ST_E_HEADER_JSON", file(ONE + "}", 4), "one too many")
add("json_mismatched_brackets", "ST_E_HEADER_JSON", one(shape="[1}"), "[ closed by }")
add("json_mismatched_brackets_in_ignored", "ST_E_HEADER_JSON", one(more=',"x":[1}'), "also where nobody looks")
add("json_crossed_brackets_in_ignored", "ST_E_HEADER_JSON", one(more=',"x":[{]}'), "closed in the wrong order")
add("json_colon_after_value", "ST_E_HEADER_JSON", one(dtype='"F32":null}'), "a value that looks like a key, its closing brace one too early")
add("json_colon_after_value_in_ignored", "ST_E_HEADER_JSON", one(more=',"x":{"k":{"k":"k":{"k":1}}}}'), "the same where nobody looks")
add("json_colon_in_array", "ST_E_HEADER_JSON", one(more=',"x":["k":1]'), "keys belong in objects")
add("json_key_without_value", "ST_E_HEADER_JSON", one(more=',"x"'), "a key alone")
add("json_value_missing", "ST_E_HEADER_JSON", one(more=',"x":'), "a colon and nothing")
add("json_comma_for_colon", "ST_E_HEADER_JSON", one(more=',"x",1'), "a comma in the wrong place")
add("json_double_comma_in_ignored", "ST_E_HEADER_JSON", one(more=',"x":[1,,2]'), "nothing between")
add("json_two_values", "ST_E_HEADER_JSON", one(more=',"x":1 2'), "which?")
add("json_two_documents", "ST_E_HEADER_JSON", file("{} {}"), "one object only")
add("json_two_documents_glued", "ST_E_HEADER_JSON", file(ONE + "{}", 4), "one object only")
add("json_comment_line", "ST_E_HEADER_JSON", file("{//x\n" + A + "}", 4), "JSON has no comments")
add("json_comment_block", "ST_E_HEADER_JSON", file("{/**/" + A + "}", 4), "JSON has no comments")
add("json_single_quotes", "ST_E_HEADER_JSON", file(ONE.replace('"', "'"), 4), "Python's repr")
add("json_bare_key", "ST_E_HEADER_JSON", file(ONE.replace('"a"', "a"), 4), "JavaScript")
add("json_number_key", "ST_E_HEADER_JSON", file(ONE.replace('"a"', "1"), 4), "keys are strings")
add("json_top_array", "ST_E_HEADER_JSON", file("[" + ENTRY + "]", 4), "the header is an object")
add("json_top_empty_array", "ST_E_HEADER_JSON", file("[]"), "the header is an object")
add("json_top_string", "ST_E_HEADER_JSON", file('"{}"'), "the header is an object")
add("json_top_number", "ST_E_HEADER_JSON", file("42"), "the header is an object")
add("json_top_null", "ST_E_HEADER_JSON", file("null"), "the header is an object")
add("json_literal_upper_case", "ST_E_HEADER_JSON", one(more=',"x":True'), "Python's True")
add("json_literal_cut", "ST_E_HEADER_JSON", one(more=',"x":nul'), "half of null")
add("json_nan", "ST_E_HEADER_JSON", one(more=',"x":NaN'), "Python writes it, JSON has no such thing")
add("json_infinity", "ST_E_HEADER_JSON", one(more=',"x":-Infinity'), "nor this")
add("json_nul_between_tokens", "ST_E_HEADER_JSON", file("{\0" + A + "}", 4), "NUL is not whitespace")
add("json_control_char_in_string", "ST_E_HEADER_JSON", utf8(b"a\nb"), "control characters must be escaped")
add("json_raw_nul_in_string", "ST_E_HEADER_JSON", utf8(b"a\0b"), "the same, and a trap for C")
add("json_control_char_in_ignored_string", "ST_E_HEADER_JSON", one(more=',"x":"\x1f"'), "also where nobody looks")
add("json_delete_char_in_string", "ST_OK", utf8(b"a\x7fb"), "U+007F need not be escaped")
add("json_bad_escape", "ST_E_HEADER_JSON", utf8(rb"\x41"), "no such escape")
add("json_bad_escape_in_ignored_string", "ST_E_HEADER_JSON", one(more=r',"x":"\q"'), "also where nobody looks")
add("json_bad_unicode_escape", "ST_E_HEADER_JSON", utf8(rb"\u12g4"), "not a hex digit")
add("json_short_unicode_escape", "ST_E_HEADER_JSON", utf8(rb"\u12"), "two of four digits")
add("json_lone_high_surrogate", "ST_E_HEADER_JSON", utf8(rb"\ud83d"), "half a pair is no character")
add("json_lone_low_surrogate", "ST_E_HEADER_JSON", utf8(rb"\ude00"), "half a pair is no character")
add("json_swapped_surrogates", "ST_E_HEADER_JSON", utf8(rb"\ude00\ud83d"), "the pair in the wrong order")
add("json_high_surrogate_twice", "ST_E_HEADER_JSON", utf8(rb"\ud83d\ud83d"), "two first halves")
add("json_high_surrogate_then_letter", "ST_E_HEADER_JSON", utf8(rb"\ud83dx"), "no second half")
add("json_high_surrogate_then_escape", "ST_E_HEADER_JSON", utf8(rb"\ud83d\n"), "another escape instead of the second half")
add("json_lone_surrogate_in_ignored_string", "ST_E_HEADER_JSON", one(more=r',"x":"\ud800"'), "also where nobody looks")
add("json_lone_surrogate_in_ignored_key", "ST_E_HEADER_JSON", one(more=r',"\udfff":1'), "also where nobody looks")
add("json_lone_surrogate_in_metadata", "ST_E_HEADER_JSON", file(r'{"__metadata__":{"k":"\ud800"}}'), "and in metadata")

# ------------------------------------------------------------------ numbers in fields that nobody reads

add("ignored_bigint_2_70", "ST_OK", one(more=f',"x":{1 << 70}'), "becomes a float in the reference")
add("ignored_negative_bigint", "ST_OK", one(more=f',"x":-{1 << 70}'), "the same, negative")
add("ignored_number_1e999", "ST_E_HEADER_JSON", one(more=',"x":1e999'), "the reference refuses what is no finite float")
add("ignored_number_minus_1e999", "ST_E_HEADER_JSON", one(more=',"x":-1e999'), "the same, negative")
add("ignored_number_1e308", "ST_OK", one(more=',"x":1e308'), "finite")
add("ignored_number_1e309", "ST_E_HEADER_JSON", one(more=',"x":1e309'), "just beyond")
add("ignored_number_max_double", "ST_OK", one(more=',"x":1.7976931348623157e308'), "the largest double")
add("ignored_number_beyond_max_double", "ST_E_HEADER_JSON", one(more=',"x":1.7976931348623158e308'), "rounds to the largest double, but the reference multiplies 17976931348623158 by 1e292 and gets infinity")
add("ignored_number_beyond_max_double_longer", "ST_OK", one(more=',"x":1.79769313486231587e308'), "rounds to infinity, but the reference multiplies 179769313486231587 by 1e291 and gets the largest double")
add("ignored_number_max_double_long", "ST_E_HEADER_JSON", one(more=',"x":17976931348623157' + "0" * 292), "the largest double written out; the reference cuts it to 20 digits, and those times 1e289 round to infinity")
add("ignored_number_tiny", "ST_OK", one(more=',"x":1e-999'), "rounds to zero")
add("ignored_number_0e999", "ST_OK", one(more=',"x":0e999'), "zero is finite")
add("ignored_number_0e99999999999", "ST_OK", one(more=',"x":0e99999999999'), "zero, with an exponent beyond 2^31")
add("ignored_number_1e99999999999", "ST_E_HEADER_JSON", one(more=',"x":1e99999999999'), "not zero")
add("ignored_number_1e_minus_99999999999", "ST_OK", one(more=',"x":1e-99999999999'), "rounds to zero")
add("ignored_number_309_digits", "ST_OK", one(more=',"x":' + "1" * 309), "1.1e308")
add("ignored_number_310_digits", "ST_E_HEADER_JSON", one(more=',"x":' + "1" * 310), "1.1e309")
add("ignored_number_400_zeros_after_point", "ST_OK", one(more=',"x":0.' + "0" * 400 + "1"), "rounds to zero")
add("ignored_number_400_digits_negative_exponent", "ST_OK", one(more=',"x":' + "1" * 400 + "e-200"), "long, but 1e199")
add("ignored_number_leading_zero", "ST_E_HEADER_JSON", one(more=',"x":01'), "not JSON")
add("ignored_number_minus_leading_zero", "ST_E_HEADER_JSON", one(more=',"x":-01'), "not JSON")
add("ignored_number_plus", "ST_E_HEADER_JSON", one(more=',"x":+1'), "not JSON")
add("ignored_number_bare_minus", "ST_E_HEADER_JSON", one(more=',"x":-'), "not JSON")
add("ignored_number_ends_in_point", "ST_E_HEADER_JSON", one(more=',"x":1.'), "not JSON")
add("ignored_number_begins_with_point", "ST_E_HEADER_JSON", one(more=',"x":.5'), "not JSON")
add("ignored_number_bare_exponent", "ST_E_HEADER_JSON", one(more=',"x":1e'), "not JSON")
add("ignored_number_hexadecimal", "ST_E_HEADER_JSON", one(more=',"x":0x10'), "not JSON")

# ------------------------------------------------------------------ depth

# The reference allows 127 levels. In a field of an entry, the header and the entry are the first two.
def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    return one(more=',"x":' + opening * (levels - 2) + ("1" if opening != "[" else "") + closing * (levels - 2))


add("depth_100", "ST_OK", nested(100), "well inside the limit")
add("depth_127", "ST_OK", nested(127), "the deepest that the reference reads")
add("depth_128", "ST_E_HEADER_JSON", nested(128), "one too deep")
add("depth_127_objects", "ST_OK", nested(127, '{"k":', "}"), "the same with objects")
add("depth_128_objects", "ST_E_HEADER_JSON", nested(128, '{"k":', "}"), "the same with objects")
add("depth_5000", "ST_E_HEADER_JSON", nested(5000), "must not overflow a stack")
add("depth_5000_unclosed", "ST_E_HEADER_JSON", file('{"a":' + "[" * 5000), "nor must this")
add("depth_100000_at_top", "ST_E_HEADER_JSON", file("[" * 100_000 + "]" * 100_000), "nor this")

# ------------------------------------------------------------------ __metadata__

def meta(value: str, more: str = "", data: int = 0) -> bytes:
    return file('{"__metadata__":' + value + more + "}", data)


add("metadata_valid", "ST_OK", meta('{"format":"pt","é":"\\u00e9\\n"}', "," + A, 4), "as most files have it")
add("metadata_empty", "ST_OK", meta("{}"), "an empty map")
add("metadata_null", "ST_OK", meta("null", "," + A, 4), "as if it were absent")
add("metadata_only", "ST_OK", meta('{"k":"v"}'), "no tensors")
add("metadata_last", "ST_OK", file("{" + A + ',"__metadata__":{"k":"v"}}', 4), "anywhere in the header")
add("metadata_empty_key_and_value", "ST_OK", meta('{"":""}'), "legal")
add("metadata_nul_in_key_and_value", "ST_OK", meta(r'{"a\u0000b":"c\u0000d"}'), "legal, and a trap for C")
add("metadata_name_escaped", "ST_OK", file(r'{"\u005f_metadata__":{"k":"v"}}'), "__metadata__ however it is spelled")
add("metadata_key_twice", "ST_OK", meta('{"k":"1","k":"2"}'), "the reference keeps the last; no tensor is hidden")
add("metadata_value_number", "ST_E_METADATA", meta('{"k":1}'), "values are strings")
add("metadata_value_null", "ST_E_METADATA", meta('{"k":null}'), "values are strings")
add("metadata_value_bool", "ST_E_METADATA", meta('{"k":true}'), "values are strings")
add("metadata_value_object", "ST_E_METADATA", meta('{"k":{}}'), "values are strings")
add("metadata_value_array", "ST_E_METADATA", meta('{"k":["v"]}'), "values are strings")
add("metadata_value_number_after_good_ones", "ST_E_METADATA", meta('{"a":"b","c":"d","k":0.5}', "," + A, 4), "every value")
add("metadata_array", "ST_E_METADATA", meta("[]"), "a map or null")
add("metadata_array_of_pairs", "ST_E_METADATA", meta('[["k","v"]]'), "a map or null")
add("metadata_string", "ST_E_METADATA", meta('"pt"'), "a map or null")
add("metadata_number", "ST_E_METADATA", meta("0"), "a map or null")
add("metadata_false", "ST_E_METADATA", meta("false"), "a map or null")
add("metadata_twice", "ST_E_METADATA", meta("{}", ',"__metadata__":{}'), "the reference refuses the second")
add("metadata_null_twice", "ST_E_METADATA", meta("null", ',"__metadata__":null'), "even if it says nothing")
add("metadata_is_a_tensor", "ST_E_METADATA", file('{"__metadata__":' + ENTRY + "}", 4), "the name is taken")
add("metadata_wrong_case", "ST_E_TENSOR_INFO", file('{"__METADATA__":{"k":"v"}}'), "that is a tensor without fields")

# ------------------------------------------------------------------ names

add("name_empty", "ST_OK", utf8(b""), "legal")
add("name_with_nul", "ST_OK", utf8(rb"a\u0000b"), "legal, and a trap for C")
add("name_only_nul", "ST_OK", utf8(rb"\u0000"), "legal")
add("names_equal_up_to_nul", "ST_OK", file(r'{"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a\u0000c":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}', b"123"), "three names for a length, one for strcmp")
add("name_with_every_escape", "ST_OK", utf8(rb"\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00"), "all that JSON has")
add("name_unicode", "ST_OK", utf8("層.0.权重😀e\u0301".encode()), "no normalisation")
add("names_differ_by_normalisation", "ST_OK", tensors({"\u00e9": info("U8", [1], [0, 1]), "e\u0301": info("U8", [1], [1, 2])}, 2), "two names")
add("name_like_a_path", "ST_OK", utf8(b"../../etc/passwd"), "a name is only a name")
add("name_64_kib", "ST_OK", utf8(b"n" * 65536), "no limit but the header's")
add("duplicate_tensor_name", "ST_E_DUPLICATE_NAME", file("{" + A + ',"b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}', 4), "which of the two?")
add("duplicate_tensor_name_identical", "ST_E_DUPLICATE_NAME", file("{" + A + "," + A + "}", 4), "the same entry twice")
add("duplicate_tensor_name_via_escape", "ST_E_DUPLICATE_NAME", file("{" + A + r',"\u0061":' + ENTRY + "}", 4), "names are compared after unescaping")
add("duplicate_empty_tensor_name", "ST_E_DUPLICATE_NAME", file('{"":' + ENTRY + ',"":' + ENTRY + "}", 4), "the empty name is a name")
add("duplicate_tensor_name_hides_hole", "ST_E_DUPLICATE_NAME", file('{"a":{"dtype":"F32","shape":[9],"data_offsets":[90,126]},' + A + "}", 4), "the first entry fits nowhere")
add("duplicate_tensor_name_both_needed", "ST_E_DUPLICATE_NAME", file("{" + A + ',"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', 8), "the reference sees a hole where the first one was")

# ------------------------------------------------------------------ the entry of a tensor

add("entry_fields_in_any_order", "ST_OK", top('{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}'), "JSON objects have no order")
add("entry_unknown_field", "ST_OK", one(more=',"strides":[1],"note":{"by":"me"}'), "readers ignore what they don't know")
add("entry_unknown_field_first", "ST_OK", top('{"x":[],' + ENTRY[1:]), "wherever it stands")
add("entry_unknown_field_twice", "ST_OK", one(more=',"x":1,"x":2'), "still ignored")
add("entry_field_name_escaped", "ST_OK", top(r'{"\u0064type":"F32","sh\u0061pe":[1],"data\u005foffsets":[0,4]}'), "names are compared after unescaping")
add("entry_as_array", "ST_OK", top('["F32",[1],[0,4]]'), "the reference reads a struct from an array too")
add("entry_as_array_too_short", "ST_E_TENSOR_INFO", top('["F32",[1]]'), "a field is missing")
add("entry_as_array_too_long", "ST_E_TENSOR_INFO", top('["F32",[1],[0,4],null]'), "a field too many")
add("entry_as_array_other_order", "ST_E_TENSOR_INFO", top('[[1],"F32",[0,4]]'), "an array has an order")
add("entry_null", "ST_E_TENSOR_INFO", top("null"), "not an entry")
add("entry_string", "ST_E_TENSOR_INFO", top('"F32"'), "not an entry")
add("entry_number", "ST_E_TENSOR_INFO", top("1"), "not an entry")
add("entry_true", "ST_E_TENSOR_INFO", top("true"), "not an entry")
add("entry_empty", "ST_E_TENSOR_INFO", top("{}"), "nothing in it")
add("entry_dtype_missing", "ST_E_TENSOR_INFO", top('{"shape":[1],"data_offsets":[0,4]}'), "required")
add("entry_shape_missing", "ST_E_TENSOR_INFO", top('{"dtype":"F32","data_offsets":[0,4]}'), "required")
add("entry_offsets_missing", "ST_E_TENSOR_INFO", top('{"dtype":"F32","shape":[1]}'), "required")
add("entry_dtype_twice", "ST_E_TENSOR_INFO", one(more=',"dtype":"F32"'), "each field once, even if equal")
add("entry_shape_twice", "ST_E_TENSOR_INFO", one(more=',"shape":[1]'), "each field once")
add("entry_offsets_twice", "ST_E_TENSOR_INFO", one(more=',"data_offsets":[0,4]'), "each field once")
add("entry_dtype_twice_via_escape", "ST_E_TENSOR_INFO", one(more=r',"dty\u0070e":"F32"'), "each field once, however spelled")
add("entry_field_wrong_case", "ST_E_TENSOR_INFO", top('{"Dtype":"F32","shape":[1],"data_offsets":[0,4]}'), "names have one case")

# ------------------------------------------------------------------ dtype

for name, bits in DTYPES.items():
    add(f"dtype_{name.lower()}", "ST_OK", one(shape="[4]", dtype=f'"{name}"', offsets=f"[0,{bits // 2}]", data=bits // 2), f"4 elements of {bits} bits")
add("dtypes_all_in_one_file", "ST_OK", tensors({n: info(n, [4], [sum(b // 2 for b in list(DTYPES.values())[:i]), sum(b // 2 for b in list(DTYPES.values())[: i + 1])]) for i, n in enumerate(DTYPES)}, sum(b // 2 for b in DTYPES.values())), "each once")
add("dtype_lower_case", "ST_E_DTYPE", one(dtype='"f32"'), "names have one case")
add("dtype_unknown", "ST_E_DTYPE", one(dtype='"F33"'), "no such type")
add("dtype_torch_name", "ST_E_DTYPE", one(dtype='"float32"'), "a framework's name")
add("dtype_empty", "ST_E_DTYPE", one(dtype='""'), "no name")
add("dtype_trailing_space", "ST_E_DTYPE", one(dtype='"F32 "'), "exactly the name")
add("dtype_trailing_nul", "ST_E_DTYPE", one(dtype=r'"F32\u0000"'), "exactly the name, also for C")
add("dtype_prefix", "ST_E_DTYPE", one(dtype='"F3"'), "the whole name")
add("dtype_newer_c128", "ST_E_DTYPE", one(dtype='"C128"', shape="[1]", offsets="[0,16]", data=16), "not in this version of the format")
add("dtype_escaped", "ST_OK", one(dtype=r'"\u004632"'), "F32, spelled with an escape")
add("dtype_number", "ST_E_TENSOR_INFO", one(dtype="17"), "not a name")
add("dtype_null", "ST_E_TENSOR_INFO", one(dtype="null"), "not a name")
add("dtype_array", "ST_E_TENSOR_INFO", one(dtype='["F32"]'), "not a name")
add("dtype_object_null", "ST_OK", one(dtype='{"F32":null}'), "the reference reads an enum so, too")
add("dtype_object_empty_object", "ST_E_TENSOR_INFO", one(dtype='{"F32":{}}'), "but not so")
add("dtype_object_empty_array", "ST_E_TENSOR_INFO", one(dtype='{"F32":[]}'), "nor so")
add("dtype_object_true", "ST_E_TENSOR_INFO", one(dtype='{"F32":true}'), "nor so")
add("dtype_object_nested", "ST_E_TENSOR_INFO", one(dtype='{"F32":{"F32":null}}'), "nor so")
add("dtype_object_empty", "ST_E_TENSOR_INFO", one(dtype="{}"), "one name")
add("dtype_object_two_names", "ST_E_TENSOR_INFO", one(dtype='{"F32":null,"F32":null}'), "one name")
add("dtype_object_unknown", "ST_E_DTYPE", one(dtype='{"F33":null}'), "a known name")

# ------------------------------------------------------------------ shape

add("shape_scalar", "ST_OK", one(shape="[]"), "rank 0: one element")
add("shape_scalar_u8", "ST_OK", one(shape="[]", dtype='"U8"', offsets="[0,1]", data=1), "rank 0, one byte")
add("shape_zero", "ST_OK", one(shape="[0]", offsets="[0,0]", data=0), "no elements")
add("shape_zero_inside", "ST_OK", one(shape="[3,0,5]", offsets="[0,0]", data=0), "no elements")
add("shape_rank_1000", "ST_OK", one(shape="[" + ",".join(["1"] * 1000) + "]"), "no limit to the rank")
add("shape_float", "ST_E_TENSOR_INFO", one(shape="[1.0]"), "1.0 is no integer to the reference")
add("shape_exponent", "ST_E_TENSOR_INFO", one(shape="[1e0]"), "nor is 1e0")
add("shape_exponent_1e2", "ST_E_TENSOR_INFO", one(shape="[1e2]", offsets="[0,400]", data=400), "nor 1e2")
add("shape_negative", "ST_E_TENSOR_INFO", one(shape="[-1]"), "no negative sizes")
add("shape_negative_zero", "ST_E_TENSOR_INFO", one(shape="[-0]", offsets="[0,0]", data=0), "-0 is a float to the reference")
add("shape_negative_pair", "ST_E_TENSOR_INFO", one(shape="[-1,-1]"), "though the product is 1")
add("shape_leading_zero", "ST_E_HEADER_JSON", one(shape="[01]"), "not JSON")
add("shape_string", "ST_E_TENSOR_INFO", one(shape='["1"]'), "a number, not its text")
add("shape_null_inside", "ST_E_TENSOR_INFO", one(shape="[null]"), "no unknown dimensions")
add("shape_true_inside", "ST_E_TENSOR_INFO", one(shape="[true]"), "true is not 1")
add("shape_nested", "ST_E_TENSOR_INFO", one(shape="[[1]]"), "one list")
add("shape_number", "ST_E_TENSOR_INFO", one(shape="1"), "a list")
add("shape_null", "ST_E_TENSOR_INFO", one(shape="null"), "a list")
add("shape_object", "ST_E_TENSOR_INFO", one(shape="{}"), "a list")
add("shape_as_text", "ST_E_TENSOR_INFO", one(shape='"[1]"'), "a list")
add("shape_2_64", "ST_E_TENSOR_INFO", one(shape=f"[{1 << 64}]"), "does not fit")
add("shape_2_64_and_zero", "ST_E_TENSOR_INFO", one(shape=f"[0,{1 << 64}]", offsets="[0,0]", data=0), "does not fit, though the product is 0")
add("shape_2_64_minus_1_and_zero", "ST_OK", one(shape=f"[0,{(1 << 64) - 1}]", offsets="[0,0]", data=0), "fits, and the product is 0")
add("product_overflow_2_64", "ST_E_SHAPE_OVERFLOW", one(shape=f"[{1 << 32},{1 << 32}]", offsets="[0,0]", data=0), "2^64 wraps to 0 elements")
add("product_overflow_to_right_size", "ST_E_SHAPE_OVERFLOW", one(shape=f"[{(1 << 62) + 1},4]", offsets="[0,16]", data=16), "wraps to 4 elements, which would fit")
add("bits_overflow_2_64", "ST_E_SHAPE_OVERFLOW", one(shape=f"[{1 << 59}]", offsets="[0,0]", data=0), "2^59 elements of 32 bits wrap to 0")
add("bits_overflow_to_right_size", "ST_E_SHAPE_OVERFLOW", one(shape=f"[{(1 << 59) + 1}]"), "wraps to 32 bits, which would fit")
add("bits_overflow_u8", "ST_E_SHAPE_OVERFLOW", one(shape=f"[{(1 << 61) + 4}]", dtype='"U8"'), "bytes would fit in 64 bits, bits do not")
add("bits_overflow_f4", "ST_E_SHAPE_OVERFLOW", one(shape=f"[{(1 << 62) + 8}]", dtype='"F4"'), "4 bits an element")
add("overflow_hidden_by_zero", "ST_E_SHAPE_OVERFLOW", one(shape=f"[{1 << 63},4,0]", offsets="[0,0]", data=0), "multiplied in order, it overflows before the 0")
add("no_overflow_after_zero", "ST_OK", one(shape=f"[0,{1 << 63},4]", offsets="[0,0]", data=0), "multiplied in order, it is 0 from the start")
add("size_2_60_truncated", "ST_E_TRUNCATED", one(shape=f"[{1 << 60}]", dtype='"U8"', offsets=f"[0,{1 << 60}]", data=4), "consistent, but the file is short")
add("size_largest_truncated", "ST_E_TRUNCATED", one(shape=f"[{(1 << 61) - 1}]", dtype='"U8"', offsets=f"[0,{(1 << 61) - 1}]", data=4), "the largest single tensor")
add(
    "data_end_near_2_64", "ST_E_TRUNCATED",
    tensors({f"t{i}": info("U8", [(1 << 61) - 1], [i * ((1 << 61) - 1), (i + 1) * ((1 << 61) - 1)]) for i in range(8)}, 8),
    "8 + n + end wraps around 2^64",
)

# ------------------------------------------------------------------ sub-byte types

add("f4_even_count", "ST_OK", one(shape="[2,3]", dtype='"F4"', offsets="[0,3]", data=3), "6 elements fill 3 bytes")
add("f4_odd_count", "ST_E_SUBBYTE", one(shape="[3]", dtype='"F4"', offsets="[0,2]", data=2), "half a byte is left over")
add("f4_odd_count_rounded_down", "ST_E_SUBBYTE", one(shape="[3]", dtype='"F4"', offsets="[0,1]", data=1), "whichever way it is rounded")
add("f4_scalar", "ST_E_SUBBYTE", one(shape="[]", dtype='"F4"', offsets="[0,1]", data=1), "half a byte")
add("f4_zero", "ST_OK", one(shape="[0]", dtype='"F4"', offsets="[0,0]", data=0), "nothing fills nothing")
add("f6_count_2", "ST_E_SUBBYTE", one(shape="[2]", dtype='"F6_E2M3"', offsets="[0,2]", data=2), "12 bits")
add("f6_count_3", "ST_E_SUBBYTE", one(shape="[3]", dtype='"F6_E3M2"', offsets="[0,3]", data=3), "18 bits")
add("f6_count_4", "ST_OK", one(shape="[2,2]", dtype='"F6_E3M2"', offsets="[0,3]", data=3), "24 bits")

# ------------------------------------------------------------------ data_offsets: one tensor

add("offsets_swapped", "ST_E_OFFSETS", one(offsets="[4,0]"), "ends before it begins")
add("offsets_one", "ST_E_TENSOR_INFO", one(offsets="[4]"), "two numbers")
add("offsets_three", "ST_E_TENSOR_INFO", one(offsets="[0,4,8]"), "two numbers")
add("offsets_empty", "ST_E_TENSOR_INFO", one(offsets="[]"), "two numbers")
add("offsets_object", "ST_E_TENSOR_INFO", one(offsets='{"0":0,"1":4}'), "a list")
add("offsets_null", "ST_E_TENSOR_INFO", one(offsets="null"), "a list")
add("offsets_string", "ST_E_TENSOR_INFO", one(offsets='["0","4"]'), "numbers, not their text")
add("offsets_float", "ST_E_TENSOR_INFO", one(offsets="[0,4.0]"), "integers")
add("offsets_exponent", "ST_E_TENSOR_INFO", one(shape="[25]", offsets="[0,1e2]", data=100), "integers")
add("offsets_negative", "ST_E_TENSOR_INFO", one(offsets="[-4,0]"), "not negative")
add("offsets_negative_zero", "ST_E_TENSOR_INFO", one(offsets="[-0,4]"), "-0 is a float to the reference")
add("offsets_2_64", "ST_E_TENSOR_INFO", one(offsets=f"[0,{1 << 64}]"), "does not fit")
add("offsets_2_64_plus_4", "ST_E_TENSOR_INFO", one(offsets=f"[0,{(1 << 64) + 4}]"), "right, if it wrapped")
add("offsets_2_64_minus_1", "ST_E_SIZE_MISMATCH", one(offsets=f"[0,{(1 << 64) - 1}]"), "fits, but not the shape")
add("offsets_span_too_small", "ST_E_SIZE_MISMATCH", one(offsets="[0,3]", data=3), "3 bytes for 4")
add("offsets_span_too_large", "ST_E_SIZE_MISMATCH", one(offsets="[0,5]", data=5), "5 bytes for 4")
add("offsets_zero_span", "ST_E_SIZE_MISMATCH", one(offsets="[0,0]", data=0), "no bytes for 4")
add("offsets_for_a_zero_shape", "ST_E_SIZE_MISMATCH", one(shape="[0]", data=4), "4 bytes for none")
add("offsets_absolute", "ST_E_HOLE", tensors({"a": info(offsets=[66, 70])}, 70), "counted from the start of the file, not of the data")

# ------------------------------------------------------------------ data_offsets: tensors side by side

def u8(*spans: tuple[int, int], data: int | None = None) -> bytes:
    """U8 tensors "t0", "t1", … at the given spans."""
    header = {f"t{i}": info("U8", [e - b], [b, e]) for i, (b, e) in enumerate(spans)}
    return tensors(header, max((e for _, e in spans), default=0) if data is None else data)


add("tensors_in_order", "ST_OK", u8((0, 4), (4, 8), (8, 9)), "the plain case")
add("tensors_in_reverse_order", "ST_OK", u8((5, 9), (4, 5), (0, 4)), "the header may have any order")
add("tensors_unaligned", "ST_OK", tensors({"a": info("U8", [1], [0, 1]), "b": info("F64", [1], [1, 9])}, 9), "alignment is a courtesy, not a rule")
add("hole_before_first", "ST_E_HOLE", u8((1, 4)), "byte 0 belongs to none")
add("hole_in_middle", "ST_E_HOLE", u8((0, 4), (5, 8)), "byte 4 belongs to none")
add("hole_in_middle_reverse_order", "ST_E_HOLE", u8((5, 8), (0, 4)), "the same, listed the other way")
add("hole_of_padding_64", "ST_E_HOLE", u8((0, 4), (64, 68)), "tensors may not be padded apart")
add("overlap_by_one", "ST_E_OVERLAP", u8((0, 4), (3, 8)), "byte 3 belongs to two")
add("overlap_same_span", "ST_E_OVERLAP", u8((0, 4), (0, 4)), "tied weights are not stored twice")
add("overlap_contained", "ST_E_OVERLAP", u8((0, 8), (2, 4)), "one inside another")
add("overlap_same_begin", "ST_E_OVERLAP", u8((0, 8), (0, 4)), "sorted by end, then")
add("overlap_and_truncated", "ST_E_OVERLAP", u8((0, 4), (2, 6), data=4), "as the reader that adds sizes would miss")
add("zero_size_only", "ST_OK", u8((0, 0)), "a file without data")
add("zero_size_at_start", "ST_OK", u8((0, 0), (0, 4)), "before byte 0")
add("zero_size_tensor_in_middle", "ST_OK", u8((0, 4), (4, 4), (4, 8)), "between two")
add("zero_size_at_end", "ST_OK", u8((0, 4), (4, 4)), "at the end of the data")
add("zero_size_several_in_one_place", "ST_OK", u8((4, 4), (4, 8), (4, 4), (0, 4), (4, 4)), "as many as you like")
add("zero_size_inside_another", "ST_E_OVERLAP", u8((0, 4), (2, 2)), "not at a border")
add("zero_size_beyond_end", "ST_E_HOLE", u8((0, 4), (8, 8), data=4), "beyond the data")
add("zero_size_beyond_end_covered", "ST_E_HOLE", u8((0, 4), (8, 8), data=8), "beyond the data, though the file is long enough")
add("zero_size_swapped", "ST_E_OFFSETS", one(shape="[0]", offsets="[4,0]", data=0), "ends before it begins")

# ------------------------------------------------------------------ larger valid files

add("many_tensors", "ST_OK", u8(*[(i, i + 1) for i in range(5000)]), "5,000 tensors of a byte")
add(
    "model_like", "ST_OK",
    tensors({"__metadata__": {"format": "pt"}} | {f"model.layers.{i}.mlp.up_proj.weight": info("BF16", [8, 4], [64 * i, 64 * i + 64]) for i in range(32)}, bytes(range(256)) * 8),
    "as a transformer looks",
)


# fmt: on
def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if out:
        out.mkdir(parents=True, exist_ok=True)
    for case in CASES.values():
        print(
            f"{case.name:46} {case.status:24} {case.why}"
            + ("   [the reference accepts]" if case.name in EXPLAINED else "")
        )
        if out:
            (out / f"{case.name}.safetensors").write_bytes(case.bytes())
    valid = sum(c.status == "ST_OK" for c in CASES.values())
    print(f"\n{len(CASES)} cases: {valid} valid, {len(CASES) - valid} malformed")


if __name__ == "__main__":
    main()

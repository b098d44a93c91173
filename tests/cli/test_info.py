"""stctl info"""

import struct

import pytest
from cli_files import BITS, write


def test_json_has_the_facts_of_the_file(stctl, model, arrays):
    info = stctl.json("info", model)
    content = model.read_bytes()
    (header_size,) = struct.unpack("<Q", content[:8])
    assert info["file"] == str(model)
    assert info["file_size"] == len(content)
    assert info["header_size"] == header_size
    assert info["data_offset"] == 8 + header_size
    assert info["data_offset"] % info["data_alignment"] == 0
    assert info["data_offset"] % (2 * info["data_alignment"]) != 0
    assert info["tensors"] == len(arrays)
    assert info["parameters"] == sum(a.size for a in arrays.values())
    assert info["nbytes"] == sum(a.nbytes for a in arrays.values())
    assert info["metadata"] == {"format": "np", "note": "a\nb"}
    assert info["dtypes"]["F32"] == {"tensors": 2, "parameters": 16, "nbytes": 64}
    assert info["dtypes"]["F64"] == {"tensors": 1, "parameters": 0, "nbytes": 0}
    assert set(info["dtypes"]) == {"F32", "F64", "I64", "F16", "U8"}
    assert info["map"] in ("shared", "private", "none")
    assert info["filesystem"] and info["reason"]


def test_text_has_facts_dtypes_and_metadata(stctl, model):
    out, err = stctl("info", model)
    assert err == ""
    facts, dtypes, metadata = out.split("\n\n")
    assert "Tensors         6\n" in facts
    assert "Parameters      45\n" in facts
    assert "Data            265 B" in facts
    assert "a multiple of" in facts and "Filesystem" in facts and "Mapping" in facts
    assert dtypes.splitlines()[0].split() == ["DTYPE", "TENSORS", "PARAMETERS", "SIZE"]
    assert ["F32", "2", "16", "64", "B"] in [line.split() for line in dtypes.splitlines()]
    assert metadata.splitlines()[0] == "METADATA"
    assert "note      a\\nb" in metadata


def test_long_metadata_is_cut_for_people_only(stctl, tmp_path):
    path = write(tmp_path / "m.safetensors", {}, {"long": "x" * 5000})
    text = stctl("info", path)[0]
    assert "x" * 200 + "…" in text and "x" * 201 not in text
    assert stctl.json("info", path)["metadata"]["long"] == "x" * 5000


@pytest.mark.parametrize("dtype", BITS)
def test_parameters_are_elements_in_every_dtype(stctl, tmp_path, dtype):
    path = write(tmp_path / "m.safetensors", {"w": (dtype, [2, 4], bytes(BITS[dtype]))})
    assert stctl.json("info", path)["dtypes"] == {dtype: {"tensors": 1, "parameters": 8, "nbytes": BITS[dtype]}}
    tensor = stctl.json("info", path, "w")
    assert (tensor["elements"], tensor["bits"], tensor["dtype"]) == (8, BITS[dtype], dtype)


def test_one_tensor(stctl, model, arrays):
    tensor = stctl.json("info", model, "layer.0.weight")
    array = arrays["layer.0.weight"]
    assert tensor["name"] == "layer.0.weight"
    assert tensor["shape"] == [3, 4]
    assert tensor["nbytes"] == array.nbytes
    assert tensor["elements"] == 12
    assert model.read_bytes()[tensor["offset"] :].startswith(array.tobytes())
    assert stctl.json("ls", model)["tensors"][tensor["index"]]["name"] == "layer.0.weight"
    text = stctl("info", model, "layer.0.weight")[0]
    assert "Shape          [3, 4]\n" in text
    assert f"File bytes     {tensor['offset']} to {tensor['offset'] + 48}\n" in text


def test_a_tensor_that_is_not_there(stctl, model):
    error = stctl.json("info", model, "weight", code=1)["error"]
    assert error["status"] == "ST_E_NOT_FOUND"
    assert error["tensor"] == "weight"


@pytest.mark.parametrize("header", [b"not json", b"{}x", b'{"a":{}}'])
def test_a_bad_header_is_refused(stctl, tmp_path, header):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    error = stctl.json("info", path, code=1)["error"]
    assert error["status"] in ("ST_E_HEADER_JSON", "ST_E_TENSOR_INFO")

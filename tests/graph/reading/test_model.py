"""What a model is like after it was read: one form for everything that comes after."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from nets import kernel, nchw

from trtpost.errors import ModelError
from trtpost.graph.reading.model import (
    FUNCTION_IR_VERSION,
    MAX_IR_VERSION,
    MIN_OPSET,
    external_files,
    load_model,
    metadata,
    normalized,
    opset_of,
    save_model,
    serialized,
    set_metadata,
    understood,
)
from trtpost.graph.wire import LARGEST


def text(opset: int = 17, ir_version: int = 8, inputs: str = "float[1,3,8,12] image", kind: str = "float") -> str:
    return f"""<ir_version: {ir_version}, opset_import: ["" : {opset}]>
               net ({inputs}) => ({kind}[1,4,8,12] logits) {{ logits = Conv (image, k) }}"""


def parsed(*arguments, **settings) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text(*arguments, **settings))
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel(4), "k"))
    return model


@pytest.mark.parametrize("ir_version", [3, 8, 99])
@pytest.mark.parametrize("opset", [7, 13, 20])
def test_versions_are_within_what_all_runtimes_take(opset, ir_version):
    inputs = "float[1,3,8,12] image, float[4,3,1,1] k"
    read = normalized(parsed(opset, ir_version, inputs), "net")
    assert opset_of(read) == max(opset, MIN_OPSET)
    assert FUNCTION_IR_VERSION <= read.ir_version <= MAX_IR_VERSION
    assert [value.name for value in read.graph.input] == ["image"]


def test_the_model_that_is_given_stays():
    model = parsed(7, 3, "float[1,3,8,12] image, float[4,3,1,1] k")
    before = model.SerializeToString()
    normalized(model, "net")
    assert model.SerializeToString() == before


def test_a_side_below_one_is_dynamic():
    model = parsed()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert not normalized(model, "net").graph.input[0].type.tensor_type.shape.dim[0].HasField("dim_value")


def test_what_is_too_new_is_refused():
    newest = onnx.defs.onnx_opset_version()
    with pytest.raises(ModelError, match=f"net has opset {newest + 1}, and onnx"):
        normalized(parsed(newest + 1), "net")
    model = parsed()
    model.graph.value_info.add(name="odd").type.tensor_type.elem_type = onnx.TensorProto.INT4 + 1
    with pytest.raises(ModelError, match=r"net: tensor 'odd' has the type .*, which is newer than IR version"):
        normalized(model, "net")


def test_anything_that_a_library_raises_is_one_sentence():
    with pytest.raises(ModelError, match="net is not a valid ONNX model: odd"), understood("net"):
        raise AssertionError("odd")
    with pytest.raises(ModelError, match="ours"), understood("net"):
        raise ModelError("ours")


def test_our_metadata_beside_others():
    model = nchw()
    model.metadata_props.add(key="author", value="somebody")
    set_metadata(model, {"a": "1", "b": "2"})
    set_metadata(model, {"b": "3"})
    assert metadata(model) == {"a": "1", "b": "3"}
    assert len(model.metadata_props) == 3


def test_weights_beside_the_file(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(parsed(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert external_files(path) == [tmp_path / "weights.bin"]
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in load_model(path).graph.initializer}
    np.testing.assert_array_equal(weights["k"], kernel(4))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"keeps its weights in .*weights\.bin, which is missing"):
        load_model(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\x08\x08", "it has no graph"),
        (b"\xff\xff", "does not parse as one"),
        (None, "no such ONNX model"),
    ],
)
def test_what_is_no_model(tmp_path, content, says):
    path = tmp_path / "net.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=says):
        load_model(path)


def test_what_is_written_is_read_again(tmp_path):
    save_model(nchw(), tmp_path / "net.onnx")
    assert load_model(tmp_path / "net.onnx").graph.node == nchw().graph.node


def test_a_graph_too_large_for_a_file(monkeypatch):
    monkeypatch.setattr("trtpost.graph.reading.model.LARGEST", 10)
    with pytest.raises(ModelError, match=r"and one file can have 0\.0 GB"):
        serialized(nchw())
    assert LARGEST == 2**31 - 1

"""Sessions of ONNX Runtime: what is asked of them, and that nothing else makes one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from nets import nchw, save

import trtpost
from trtpost import onnx_runtime


@pytest.mark.parametrize(
    ("asked", "entry", "value"),
    [
        ({}, "session.intra_op.allow_spinning", None),
        ({"spin": False}, "session.intra_op.allow_spinning", "0"),
        ({}, "session.disable_quant_qdq", None),
        ({"int8_kernels": False}, "session.disable_quant_qdq", "1"),
    ],
)
def test_settings_are_those_asked_for(asked, entry, value):
    options = onnx_runtime.session(nchw().SerializeToString(), **asked).get_session_options()
    if value is None:
        with pytest.raises(RuntimeError):
            options.get_session_config_entry(entry)
    else:
        assert options.get_session_config_entry(entry) == value


def test_threads_and_layout_are_those_asked_for():
    content, levels = nchw().SerializeToString(), onnxruntime.GraphOptimizationLevel
    default = onnx_runtime.session(content).get_session_options()
    assert (default.intra_op_num_threads, default.graph_optimization_level) == (0, levels.ORT_ENABLE_ALL)
    asked = onnx_runtime.session(content, threads=2, relayout=False).get_session_options()
    assert (asked.intra_op_num_threads, asked.graph_optimization_level) == (2, levels.ORT_ENABLE_EXTENDED)


def test_a_file_is_the_same_as_its_content_and_runs_on_the_cpu_alone(tmp_path):
    path, image = save(nchw(), tmp_path / "net.onnx"), {"image": np.ones((1, 3, 8, 12), np.float32)}
    sessions = [onnx_runtime.session(one) for one in (path, path.read_bytes())]
    np.testing.assert_array_equal(*(one.run(None, image)[0] for one in sessions))
    assert sessions[0].get_providers() == ["CPUExecutionProvider"]


def test_what_it_does_not_take_is_raised_and_not_printed(capfd):
    with pytest.raises(Exception, match=r"(?i)protobuf"):
        onnx_runtime.session(b"no model")
    assert capfd.readouterr().err == ""


def test_no_other_module_makes_sessions():
    package = Path(trtpost.__file__).parent
    makers = [path.name for path in package.rglob("*.py") if "InferenceSession(" in path.read_text("utf-8")]
    assert makers == ["onnx_runtime.py"]

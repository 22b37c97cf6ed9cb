"""Parts of models keep everything that they use."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest
from nets import kernel, nchw, net

from trtpost.errors import ModelError
from trtpost.graph.proto import part_of

IO = ("float[1,3,8,12] image", "float[1,4,8,12] logits")
BRANCH = """logits = If (z) <
               then_branch = one () => (float[1,4,8,12] p) { p = Add (y, bias) },
               else_branch = two () => (float[1,4,8,12] q) {
                 q = If (z) <
                   then_branch = three () => (float[1,4,8,12] r) { r = Relu (y) },
                   else_branch = four () => (float[1,4,8,12] s) { s = Neg (deep) }
                 >
               }
             >"""


@pytest.mark.parametrize("branch", [True, False])
def test_what_only_a_subgraph_uses_comes_along(branch):
    """Values, weights, and what makes them, at any depth: onnx's own extractor leaves them out."""
    model = net(
        f"""y = Conv (image, k)
            h = Relu (y)
            deep = Mul (h, bias)
            z = Identity (switch)
            {BRANCH}
            mask = ArgMax <axis = 1> (logits)""",
        IO[0],
        "int64[1,1,8,12] mask",
        k=kernel(4),
        bias=np.float32(3),
        switch=np.array(branch),
    )
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, 4, 8, 12]))
    part = part_of(model, ["image"], ["logits"])
    onnx.checker.check_model(part, full_check=True)
    image = np.random.default_rng(0).standard_normal((1, 3, 8, 12)).astype(np.float32)
    y = np.einsum("kc,nchw->nkhw", kernel(4)[:, :, 0, 0], image)
    expected = y + 3 if branch else -3 * np.maximum(y, 0)
    (found,) = onnx.reference.ReferenceEvaluator(part).run(None, {"image": image})
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "ArgMax" not in {node.op_type for node in part.graph.node}


def test_what_is_not_needed_stays():
    """Nodes, weights and functions that do not lead to the outputs."""
    model = net(
        """y = Conv (image, k)
           logits = Relu (y)
           other = Mul (y, other_weight)""",
        IO[0],
        f"{IO[1]}, float[1,4,8,12] other",
        k=kernel(4),
        other_weight=np.float32(2),
    )
    part = part_of(model, ["image"], ["logits"])
    assert [node.op_type for node in part.graph.node] == ["Conv", "Relu"]
    assert [one.name for one in part.graph.initializer] == ["k"]
    assert [one.name for one in part_of(model, ["y"], ["logits"]).graph.input] == ["y"]


def test_a_tensor_without_a_type():
    with pytest.raises(ModelError, match="type of tensor 'nothing' is not known"):
        part_of(nchw(), ["image"], ["nothing"])

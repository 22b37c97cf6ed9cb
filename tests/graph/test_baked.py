"""What is read of a baked graph's bytes, and functions that never end."""

from __future__ import annotations

import onnx
import pytest
from nets import nchw

from trtpost.errors import ModelError
from trtpost.graph.baked import MAX_DEPTH, Baked, check_calls, expanded, source_name
from trtpost.graph.baking.bake import bake
from trtpost.graph.baking.seam import inlined
from trtpost.graph.head.locate import locate
from trtpost.graph.reading.model import set_metadata
from trtpost.spec import Post, Pre


def made() -> onnx.ModelProto:
    return bake(nchw(), locate(nchw()), Pre(8, 12), Post(classes=4))


def test_names():
    assert (source_name("network/a/b"), source_name("image")) == ("a/b", "image")


def test_the_passport_and_the_digest():
    plain, told = made(), made()
    set_metadata(told, {"passport": "text", "other": "more"})
    without, baked = (Baked(one.SerializeToString()) for one in (plain, told))
    assert (without.passport, baked.passport) == (None, "text")
    assert without.digest() == baked.digest()
    plain.graph.node[0].name = "another"
    assert Baked(plain.SerializeToString()).digest() != baked.digest()


def test_what_the_graph_is_like():
    model = made()
    assert not Baked(model.SerializeToString()).is_inlined
    assert Baked(inlined(model).SerializeToString()).is_inlined
    assert not Baked(model.SerializeToString()).has_bfloat16
    model.graph.initializer.add(name="b", data_type=onnx.TensorProto.BFLOAT16)
    assert Baked(model.SerializeToString()).has_bfloat16


def calls(**functions: str) -> dict:
    """Functions by name, and what they call, a letter each."""
    return {("", name): [("", one) for one in called] for name, called in functions.items()}


@pytest.mark.parametrize(
    ("functions", "counts"),
    [
        (calls(f="xy"), {"f": 2}),
        (calls(f="gg", g="xxx"), {"f": 6, "g": 3}),
        (calls(f="g", g=""), {"f": 1, "g": 1}),
    ],
)
def test_expanded(functions, counts):
    assert {name: count for (_, name), count in expanded(functions, "net").items()} == counts


@pytest.mark.parametrize(
    ("functions", "says"),
    [
        (calls(f="f"), "net: function 'f' calls itself"),
        (calls(f="g", g="h", h="g"), "calls itself, so it has no end"),
        (calls(**{chr(400 + at): chr(401 + at) for at in range(MAX_DEPTH + 1)}), f"{MAX_DEPTH + 1} deep"),
        (calls(**{chr(400 + at): 2 * chr(401 + at) for at in range(18)}), "expand to 2.6e"),
    ],
    ids=["itself", "circle", "deep", "doubling"],
)
def test_functions_that_never_end(functions, says):
    with pytest.raises(ModelError, match=says):
        check_calls(functions, list(functions)[:1], "net")

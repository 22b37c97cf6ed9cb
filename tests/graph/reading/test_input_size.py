"""A dynamic size is fixed; a fixed one stays."""

from __future__ import annotations

import pytest
from nets import nchw, nhwc

from trtpost.errors import ModelError
from trtpost.graph.reading.input_size import with_input_size


def sides(value):
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_a_dynamic_network_gets_its_size():
    model = nchw(size="H,W", batch="N")
    sized = with_input_size(model, "image", "NCHW", (8, 12))
    assert sides(sized.graph.input[0]) == [0, 3, 8, 12]
    assert sides(sized.graph.output[0]) == [0, 4, 8, 12]
    assert sides(model.graph.input[0]) == [0, 3, 0, 0]


@pytest.mark.parametrize(("model", "layout"), [(nchw(), "NCHW"), (nhwc(), "NHWC")])
def test_another_fixed_size_is_refused(model, layout):
    assert sides(with_input_size(model, "image", layout, (8, 12)).graph.input[0]) == sides(model.graph.input[0])
    with pytest.raises(ModelError, match="'image' is fixed at 12 pixels on one side, so --input-size 8x16 does not"):
        with_input_size(model, "image", layout, (8, 16))

"""What the sets of operators say, held against what ONNX says and computes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

from trtpost.graph import ops

SETS = {name: value for name, value in vars(ops).items() if isinstance(value, frozenset)}


def values(text: str, given: np.ndarray) -> np.ndarray:
    """What an operator makes of `x`, a float array of four dimensions."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> net (float[N,C,H,W] x) => (float[] out) {{ {text} }}'
    )
    shape = given.shape
    weights = {
        "flat": np.array([shape[0], -1]),
        "first": np.array([0]),
        "second": np.array([1]),
        "halves": np.array([shape[1] // 2, shape[1] // 2]),
        "at": np.zeros((1, *shape[1:]), np.int64),
        "twice": np.array([2, *shape[1:]]),
        "counts": np.array([2, 1, 1, 3]),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    return np.asarray(onnx.reference.ReferenceEvaluator(model).run(None, {"x": given})[0])


MOVES = {
    "Identity": "out = Identity (x)",
    "Reshape": "out = Reshape (x, flat)",
    "Flatten": "out = Flatten (x)",
    "Squeeze": "out = Squeeze (x, first)",
    "Unsqueeze": "out = Unsqueeze (x, first)",
    "Transpose": "out = Transpose <perm = [0, 2, 3, 1]> (x)",
    "DepthToSpace": "out = DepthToSpace <blocksize = 2> (x)",
    "SpaceToDepth": "out = SpaceToDepth <blocksize = 2> (x)",
    "Slice": "out = Slice (x, first, second)",
    "Split": "out, o = Split <axis = 1> (x, halves)",
    "Gather": "out = Gather <axis = 1> (x, second)",
    "GatherND": "out = GatherND (x, first)",
    "GatherElements": "out = GatherElements (x, at)",
    "Expand": "out = Expand (x, twice)",
    "Tile": "out = Tile (x, counts)",
}


@pytest.mark.parametrize("op", sorted(ops.MOVING))
def test_what_moves_changes_no_value(op):
    given = np.arange(4 * 4 * 6, dtype=np.float32).reshape(1, 4, 4, 6)
    made = values(MOVES[op], given)
    counts = Counter(made.ravel().tolist())
    assert counts.keys() <= set(given.ravel().tolist())
    if op in ops.RESHAPING | {"Identity"}:
        assert made.ravel().tolist() == given.ravel().tolist()
    elif op in ops.PERMUTING:
        assert set(counts.values()) == {1}
        assert made.size == given.size
        assert made.ravel().tolist() != given.ravel().tolist()
    elif op in ops.SELECTING:
        assert made.size <= given.size
    else:
        assert made.size > given.size
        assert len(counts) == given.size


@pytest.mark.parametrize("op", sorted(ops.ROUNDING))
def test_rounding_leaves_whole_numbers_as_they_are(op):
    given = np.array([-3, -0.0, 2, 5], np.float32).reshape(1, 1, 2, 2)
    assert (values(f"out = {op} (x)", given) == given).all()
    assert (values(f"out = {op} (x)", given + 0.4) != given + 0.4).all()


@pytest.mark.parametrize("name", sorted(SETS))
def test_every_operator_is_one_of_onnx(name):
    assert [op for op in SETS[name] if not onnx.defs.has(op)] == []


def result_types(op: str) -> set[str]:
    schema = onnx.defs.get_schema(op)
    kinds = {one.type_param_str: set(one.allowed_type_strs) for one in schema.type_constraints}
    name = schema.outputs[0].type_str
    return kinds.get(name, {name})


def test_comparisons_are_what_gives_booleans_alone():
    names = {one.name for one in onnx.defs.get_all_schemas() if one.domain == "" and one.outputs and not one.deprecated}
    booleans = {name for name in names if result_types(name) == {"tensor(bool)"}}
    assert booleans - ops.COMPARING <= {"OptionalHasElement", "RegexFullMatch"}  # not of tensors of numbers
    assert booleans >= ops.COMPARING


def test_class_ids_are_int64():
    assert [op for op in ops.INDEXING if result_types(op) != {"tensor(int64)"}] == []


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (ops.MOVING, ops.WITHIN_INPUT),
        (ops.MOVING, ops.KEEPING_IDS),
        (ops.MOVING, ops.EXACT),
        (ops.JOINING, ops.WITHIN_ONE_INPUT),
        (ops.RETYPING, ops.MOVING_LABELS),
        (ops.MOVING_LABELS, ops.KEEPING_IDS),
        (ops.MOVING_LABELS, ops.CHANNELWISE),
        (ops.RESHAPING, ops.LOSING_AXES),
    ],
)
def test_who_passes_more(narrow, wide):
    assert narrow < wide


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ops.KEEPING_IDS, ops.CHOOSING_IDS),
        (ops.KEEPING_IDS, ops.COUNTING_WITH_IDS),
        (ops.CHOOSING_IDS, ops.COUNTING_WITH_IDS),
        (ops.KEEPING_IDS | ops.CHOOSING_IDS | ops.COUNTING_WITH_IDS, ops.SPOILING_IDS),
        (ops.WITHIN_INPUT, ops.WITHIN_INPUT_OR_ZERO),
        (ops.WITHIN_INPUT | ops.WITHIN_INPUT_OR_ZERO, ops.WITHIN_ONE_INPUT),
        (ops.KEEPING_LOGITS, ops.MIXING),
        (ops.NCHW, ops.LOSING_AXES),
    ],
)
def test_no_operator_has_two_meanings(one, other):
    assert one.isdisjoint(other)

"""Class names in a file: given, or found beside the model and said."""

from __future__ import annotations

import json

import pytest
from nets import nchw, save

import trtpost as tp
from trtpost.builder.labels import MAX_BYTES, labels_beside, read_labels
from trtpost.errors import SpecError


def test_names_are_lines_up_to_the_first_blank_one(tmp_path):
    file = tmp_path / "labels.txt"
    file.write_text("\ufeffsky\n road \n\nfrom a paper\n", encoding="utf-8")
    said = []
    assert read_labels(file, said.append) == ("sky", "road")
    assert said == [
        f"{file} has a blank line after 2 class names, so what follows is left out, from 'from a paper' on: if those "
        "are classes too, take the blank line away"
    ]


@pytest.mark.parametrize("text", ["sky\nroad", "\n\nsky\nroad\n\n \n", "0 sky\n1 road", '["sky", "road"]'])
def test_what_is_read_whole_is_not_said(tmp_path, text):
    (tmp_path / "labels.txt").write_text(text)
    said = []
    assert read_labels(tmp_path / "labels.txt", said.append) == ("sky", "road")
    assert not said


@pytest.mark.parametrize(
    ("stated", "names"),
    [
        ({"0": "background", "1": "cat"}, ("background", "cat")),
        ({"1": "cat", "0": " background "}, ("background", "cat")),
        (
            {"model_type": "segformer", "id2label": {"0": "wall", "1": "a, b"}, "label2id": {"wall": 0}},
            ("wall", "a, b"),
        ),
        ({str(index): f"n{index}" for index in range(12)}, tuple(f"n{index}" for index in range(12))),
        ({"1": "cat", "3": "dog"}, ("class 0", "cat", "class 2", "dog")),
        (["background", "cat"], ("background", "cat")),
    ],
)
def test_names_in_json(tmp_path, stated, names):
    for indent in (None, 2):
        (tmp_path / "config.json").write_text(json.dumps(stated, indent=indent))
        assert read_labels(tmp_path / "config.json") == names


@pytest.mark.parametrize(
    "stated",
    [{}, [], [1, 2], {"0": None}, {"0": ""}, {"cat": 0}, {"model_type": "x"}, {"70000": "a"}, {"id2label": "a"}],
)
def test_json_without_names(tmp_path, stated):
    (tmp_path / "config.json").write_text(json.dumps(stated))
    with pytest.raises(SpecError, match=r"config\.json is JSON without class names: give a map of ids"):
        read_labels(tmp_path / "config.json")


@pytest.mark.parametrize("text", ["{sky}\n{road}", "[sky]\n[road]", "[" * 100_000])
def test_lines_in_brackets_are_lines(tmp_path, text):
    (tmp_path / "labels.txt").write_text(text)
    assert read_labels(tmp_path / "labels.txt") == tuple(text.splitlines())


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"\xff\xfe\x00", "is not a text file"), (b"\n\n", "holds no class names"), (b"x" * (MAX_BYTES + 1), "16 MiB")],
)
def test_what_holds_no_names(tmp_path, content, says):
    (tmp_path / "labels.txt").write_bytes(content)
    with pytest.raises(SpecError, match=says):
        read_labels(tmp_path / "labels.txt")


def test_where_they_are_looked_for(tmp_path):
    model, saved = tmp_path / "net.keras", tmp_path / "saved"
    saved.mkdir()
    assert labels_beside(model) is None
    for name, target in (("labels.txt", model), ("net.labels.txt", model)):
        (tmp_path / name).write_text("a")
        assert labels_beside(target) == tmp_path / name
    assert labels_beside(saved) == tmp_path / "labels.txt"
    (saved / "labels.txt").write_text("a")
    assert labels_beside(saved) == saved / "labels.txt"


def built(tmp_path, command_line, *more):
    status, output, errors = command_line("build", "net.onnx", "--flavour", "none", *more, cwd=tmp_path)
    assert status == 0, errors
    return output, tp.load_bundle(tmp_path / "net.trtpost").passport.classes


def test_a_file_beside_the_model_is_taken_and_said(tmp_path, command_line):
    save(nchw(), tmp_path / "net.onnx")
    names = ("sky", "road", "tree", "car")
    (tmp_path / "labels.txt").write_text("\n".join(names))
    output, classes = built(tmp_path, command_line)
    assert classes == names
    assert "labels    4 class names of labels.txt, found beside the model; --labels takes others" in output
    assert "nothing to do" in built(tmp_path, command_line)[0]
    (tmp_path / "labels.txt").write_text("\n".join(reversed(names)))
    assert built(tmp_path, command_line)[1] == names[::-1]
    (tmp_path / "own.txt").write_text("a\nb\nc\nd")
    output, classes = built(tmp_path, command_line, "--labels", "own.txt")
    assert classes == ("a", "b", "c", "d")
    assert "beside the model" not in output
    (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate("wxyz"))}))
    assert built(tmp_path, command_line, "--labels", "config.json")[1] == ("w", "x", "y", "z")
    (tmp_path / "own.txt").write_text("0 a\n1 b\n2 c\n3 d\n\ne\n")
    output, classes = built(tmp_path, command_line, "--labels", "own.txt")
    assert classes == ("a", "b", "c", "d")
    assert "warning own.txt has a blank line after 4 class names, so what follows is left out, from 'e' on" in output


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            "a\nb\nc",
            "labels.txt, found beside the model, has 3 class names, and the network 4 classes, so they are not",
        ),
        ("a\nb\nc\nd\ne", "has 5 class names, and the network 4 classes"),
        ("\n", "labels.txt holds no class names: write one a line; found beside the model, it is left out"),
    ],
)
def test_one_that_does_not_fit_is_said_and_left(tmp_path, command_line, content, says):
    save(nchw(), tmp_path / "net.onnx")
    (tmp_path / "labels.txt").write_text(content)
    output, classes = built(tmp_path, command_line)
    assert classes == ("class 0", "class 1", "class 2", "class 3")
    assert says in output
    assert "--labels" in output


def test_one_without_end_is_said_and_left_before_it_is_read(tmp_path, command_line):
    save(nchw(), tmp_path / "net.onnx")
    with (tmp_path / "labels.txt").open("wb") as file:
        file.truncate(1 << 40)  # sparse: to read it would take minutes
    output, classes = built(tmp_path, command_line)
    assert classes[0] == "class 0"
    assert "no label file is that long; found beside the model, it is left out" in output

"""Class names in a file: given, or found beside the model and said."""

from __future__ import annotations

import pytest
from nets import nchw, save

import trtpost as tp
from trtpost.builder.labels import MAX_BYTES, labels_beside, read_labels
from trtpost.errors import SpecError


def test_names_are_lines_up_to_the_first_blank_one(tmp_path):
    file = tmp_path / "labels.txt"
    file.write_text("\ufeffsky\n road \n\nfrom a paper\n", encoding="utf-8")
    assert read_labels(file) == ("sky", "road")


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

"""What a TFLite file says of itself: normalisation and class names, read without TensorFlow.

Field numbers are those of the TFLite schema (`schema.fbs`) and the TFLite metadata schema (`metadata_schema.fbs`);
associated files, such as label lists, are a zip archive at the end of the file.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtpost.errors import ModelError, reason
from trtpost.spec import parse_labels
from trtpost.storage.files import open_regular

_LARGEST_LABELS = 1 << 22
"""Most bytes of class names: archives may hold a thousand times their own size."""

UNPACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How entries of archives may be compressed: Python unpacks the other kinds whole, whatever little is asked for."""

_MOST_TABLES = 1 << 17
"""Most tables in one list: buffers are the longest, one for each tensor."""

_LONGEST_TEXT = 4096
"""Most bytes of a name."""

_PRODUCTS = (3, 4, 9, 67, 126)
"""CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED, TRANSPOSE_CONV and BATCH_MATMUL, in the enumeration BuiltinOperator."""

_FLOAT32, _INT8 = 0, 9  # in the enumeration TensorType

_NORMALIZATION_OPTIONS = 1  # in the union ProcessUnitOptions


@dataclass(frozen=True)
class Metadata:
    """The normalisation, `(pixel - mean) / std`, and class names; empty where the file says nothing."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()

    def to_properties(self) -> dict[str, str]:
        """The metadata entries of an ONNX model that say the same."""
        properties = {}
        if self.mean and self.std:
            properties["normalization"] = json.dumps({"mean": self.mean, "std": self.std})
        if self.labels:
            properties["labels"] = json.dumps(self.labels)
        return properties


def custom_operators(path: Path) -> list[tuple[str, bytes]]:
    """The operators that are not TFLite's own, by name, each with its options; those of TensorFlow begin with `Flex`.

    Raises:
        ModelError: the file is damaged.
    """
    try:
        with open_regular(path) as file:
            return list(_custom_operators(file.read()))
    except (OSError, struct.error, IndexError, TypeError, ValueError) as error:
        raise ModelError(f"the file is damaged or cut short: {reason(error)}") from None


def _custom_operators(data: bytes) -> Iterator[tuple[str, bytes]]:
    model = _root(data)
    names = [_text(code, 1) for code in _tables(model, 1)]
    yield from ((name, b"") for name in names if name)
    seen: set[int] = set()
    count, length = 0, 0
    for graph in _tables(model, 2):
        operators = _tables(graph, 3)
        count += len(operators)
        if count > _MOST_TABLES:  # graphs may share them
            raise ValueError(f"more than {_MOST_TABLES} operators")
        for operator in operators:
            if operator.Pos in seen or not (name := names[_unsigned(operator, 0)]).startswith("Flex"):
                continue
            seen.add(operator.Pos)
            offset, size = _unsigned(operator, 9, "<Q"), _unsigned(operator, 10, "<Q")  # of options outside the tables
            for options in (_bytes(operator, 5), data[offset : offset + size] if offset > 1 else b""):
                length += len(options)
                if length > len(data):
                    raise ValueError("operators that share their options")
                yield name, options


def is_dynamic_range(path: Path) -> bool:
    """Whether the interpreter quantises activations on the fly: a product of floats and of weights in integers.

    Raises:
        ModelError: the file is damaged.
    """
    try:
        with open_regular(path) as file:
            return any({_FLOAT32, _INT8} <= kinds for kinds in _types_of_products(file.read()))
    except (OSError, struct.error, IndexError, TypeError, ValueError) as error:
        raise ModelError(f"the file is damaged or cut short: {reason(error)}") from None


def _types_of_products(data: bytes) -> Iterator[set[int]]:
    """The types of what each convolution and matrix product takes."""
    model = _root(data)
    codes = [max(_byte(code, 0), _unsigned(code, 3)) for code in _tables(model, 1)]
    count = length = 0
    for graph in _tables(model, 2):
        tensors, operators = _tables(graph, 0), _tables(graph, 3)
        count += len(tensors) + len(operators)
        if count > 2 * _MOST_TABLES:  # graphs may share them
            raise ValueError(f"more than {2 * _MOST_TABLES} tensors and operators")
        for operator in operators:
            if codes[_unsigned(operator, 0)] not in _PRODUCTS:
                continue
            taken = _vector(operator, 1, 4)
            length += len(taken)
            if length > len(data):
                raise ValueError("operators that share their lists of tensors")
            places = struct.unpack(f"<{len(taken) // 4}i", taken)
            yield {_byte(tensors[place], 1) for place in places if place >= 0}


def read_metadata(path: Path) -> Metadata:
    """Read normalisation of the first input and the label list; what is missing or damaged is left empty."""
    with open_regular(path) as file:
        data = file.read()
    try:
        mean, std = _normalization(data)
    except (struct.error, IndexError, TypeError, ValueError):
        mean, std = (), ()
    return Metadata(mean, std, _labels(path))


def _labels(path: Path) -> tuple[str, ...]:
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                name = entry.filename
                if "label" in name.lower() and name.endswith(".txt") and entry.compress_type in UNPACKED:
                    with archive.open(entry) as packed:  # what the archive says of its size need not be true
                        text = packed.read(_LARGEST_LABELS + 1)
                    return parse_labels(text.decode("utf-8", "replace")) if len(text) <= _LARGEST_LABELS else ()
    except Exception:  # every way of compressing has errors of its own
        pass
    return ()


def _normalization(data: bytes) -> tuple[tuple[float, ...], tuple[float, ...]]:
    model = _root(data)
    buffers = _tables(model, 4)
    for entry in _tables(model, 6):
        if _text(entry, 0) != "TFLITE_METADATA":
            continue
        metadata = _root(_bytes(buffers[_unsigned(entry, 1)], 0))
        for subgraph in _tables(metadata, 3)[:1]:
            for tensor in _tables(subgraph, 2)[:1]:
                for unit in _tables(tensor, 4):
                    if _byte(unit, 0) == _NORMALIZATION_OPTIONS:
                        options = _table(unit, 1)
                        return _floats(options, 0), _floats(options, 1)
        break  # others of this name would be the same table, read again and again
    return (), ()


# --- flatbuffers: a table is read through its field numbers


def _root(data: bytes) -> Any:
    from flatbuffers.table import Table

    return Table(data, struct.unpack_from("<I", data)[0])


def _field(table: Any, number: int) -> int:
    """Position of a field in the buffer; 0 where it is absent."""
    offset = table.Offset(4 + 2 * number)
    return int(table.Pos + offset) if offset else 0


def _tables(table: Any, number: int) -> list[Any]:
    from flatbuffers.table import Table

    offset = table.Offset(4 + 2 * number)
    if not offset:
        return []
    start, count = table.Vector(offset), table.VectorLen(offset)
    if count > _MOST_TABLES:
        raise ValueError(f"a list of {count} tables; no more than {_MOST_TABLES} are read")
    return [Table(table.Bytes, table.Indirect(start + 4 * i)) for i in range(count)]


def _table(table: Any, number: int) -> Any:
    from flatbuffers.table import Table

    return Table(table.Bytes, table.Indirect(_field(table, number)))


def _vector(table: Any, number: int, size: int) -> bytes:
    offset = table.Offset(4 + 2 * number)
    if not offset:
        return b""
    start = table.Vector(offset)
    return bytes(table.Bytes[start : start + size * table.VectorLen(offset)])


def _bytes(table: Any, number: int) -> bytes:
    return _vector(table, number, 1)


def _floats(table: Any, number: int) -> tuple[float, ...]:
    data = _vector(table, number, 4)
    return struct.unpack(f"<{len(data) // 4}f", data)


def _text(table: Any, number: int) -> str:
    """Read a name, unless copying it from a shared place, again and again, would take the memory.

    Raises:
        ValueError: it is that long.
    """
    position = _field(table, number)
    if not position:
        return ""
    start = position + struct.unpack_from("<I", table.Bytes, position)[0]
    if (length := struct.unpack_from("<I", table.Bytes, start)[0]) > _LONGEST_TEXT:
        raise ValueError(f"a name of {length} bytes")
    return bytes(table.Bytes[start + 4 : start + 4 + length]).decode("utf-8", "replace")


def _unsigned(table: Any, number: int, form: str = "<I") -> int:
    position = _field(table, number)
    return int(struct.unpack_from(form, table.Bytes, position)[0]) if position else 0


def _byte(table: Any, number: int) -> int:
    position = _field(table, number)
    return int(table.Bytes[position]) if position else 0

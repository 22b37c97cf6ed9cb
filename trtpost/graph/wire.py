"""Protocol buffers as bytes: enough to read a few fields of a message and to write it with others left out.

What runs a bundle takes a network and a passport out of an ONNX file, for which importing `onnx` takes longer than
running the network. https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

LARGEST = (1 << 31) - 1
"""Bytes that a message, and so one ONNX file, can have."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are no message, or not in the form in which messages are written."""


class Field(NamedTuple):
    """One field of a message: its number, its value, and both as they were written."""

    number: int
    value: int | memoryview
    raw: memoryview


def fields(message: memoryview) -> Iterator[Field]:
    """The fields of a message in the order in which they were written; numbers as they lie there, without a sign.

    Raises:
        WireError: the bytes end too early, or are none of a message.
    """
    position, end = 0, len(message)
    while position < end:
        start = position
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        value: int | memoryview
        if kind == VARINT:
            value, position = _varint(message, position)
        elif kind == BYTES:
            length, position = _varint(message, position)
            value = message[position : position + length]
            position += length
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
            value = int.from_bytes(message[position : position + length], "little")
            position += length
        else:
            raise WireError(f"there is no wire type {kind} here")
        if position > end or not number:
            raise WireError("the message is cut short" if number else "there is no field 0")
        yield Field(number, value, message[start:position])


def messages(message: memoryview, number: int) -> list[memoryview]:
    """All values of a field that holds messages, texts or bytes.

    Raises:
        WireError: it holds something else.
    """
    return [bytes_of(field) for field in fields(message) if field.number == number]


def bytes_of(field: Field) -> memoryview:
    """The value of a field that holds a message, a text or bytes.

    Raises:
        WireError: it holds a number.
    """
    if isinstance(field.value, int):
        raise WireError(f"field {field.number} is a number")
    return field.value


def single(message: memoryview, number: int) -> memoryview:
    """The value of a field that holds one message, or text; empty where it is missing.

    Raises:
        WireError: it is there twice: other readers merge the two, or take one.
    """
    found = messages(message, number)
    if len(found) > 1:
        raise WireError(f"field {number} is there {len(found)} times")
    return found[0] if found else memoryview(b"")


def integer(message: memoryview, number: int) -> int:
    """The value of a field that holds one number; 0 where it is missing.

    Raises:
        WireError: it is there twice, or no number.
    """
    found = [field.value for field in fields(message) if field.number == number]
    value = found[0] if found else 0
    if len(found) > 1 or not isinstance(value, int):
        raise WireError(f"field {number} is not one number")
    return value


def text(message: memoryview, number: int) -> str:
    """The value of a field that holds one text; empty where it is missing.

    Raises:
        WireError: it is there twice, or no UTF-8.
    """
    try:
        return str(single(message, number), "utf-8")
    except UnicodeDecodeError:
        raise WireError(f"field {number} is no text") from None


def written(number: int, parts: Iterable[bytes | memoryview]) -> bytes:
    """A field that holds the message of these fields."""
    content = b"".join(parts)
    return _as_varint(number << 3 | BYTES) + _as_varint(len(content)) + content


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number of 1 to 10 bytes, and the position behind it."""
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise WireError("a number is cut short, or too long")


def _as_varint(value: int) -> bytes:
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    return bytes([*result, value])

"""Tells which photos of an earlier run have their masks: a mask says of itself what it was made with.

So there is no list of finished photos that could be lost, or disagree with what is there. A few hundred bytes of a mask
and the two ends of its photo are read; nothing is decoded.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import IO, BinaryIO

from trtpost.bundle.folder import Contents
from trtpost.masks.png import END, HEAD, HEADER, MARK, encoding_of, size_and_text
from trtpost.spec import Encoding
from trtpost.storage.files import open_regular

ENDS = 1 << 16
"""Bytes at the beginning and at the end of a photo that tell it from others: what cameras write, and what they saw."""

KIND = 2
"""Number of the way in which fingerprints are made; another number gives other fingerprints."""


def is_ours(file: BinaryIO) -> bool:
    """Does a file begin as the masks and overlays do that trtpost writes?"""
    return size_and_text(file.read(HEAD), MARK) is not None


def fingerprint(contents: Contents, *, fast_decode: bool = False) -> str:
    """SHA-256 of everything that decides a pixel of a mask: the baked graph, the spec, how photos are decoded.

    A bundle that is moved, verified, or built again of the same model keeps it, on whatever GPU; so it does where only
    the names of its classes or the sizes of its plan change. Which backend runs it does not matter.
    """
    passport = contents.bundle.passport
    spec = {"kind": KIND, "pre": asdict(passport.pre), "post": asdict(passport.post), "fast_decode": fast_decode}
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode())
    digest.update(contents.baked.digest())
    return digest.hexdigest()


def source_of(name: str, length: int, date: int, ends: bytes) -> str:
    """What tells a photo from another one whose mask has the same name, in 16 hex digits.

    Args:
        name: its file's, without folders.
        length: bytes of the file.
        date: nanoseconds of its last change; 0 where that is not known.
        ends: its first and last bytes, what `ends_of` gives.
    """
    facts = f"{length} {date} {name}\0".encode("utf-8", "surrogateescape")
    return hashlib.sha256(facts + ends).hexdigest()[:16]


def ends_of(file: IO[bytes], length: int) -> bytes:
    """The first and the last `ENDS` bytes of a file."""
    file.seek(0)
    head = file.read(ENDS)
    file.seek(max(length - ENDS, len(head)))
    return head + file.read(ENDS)


def mark_of(fingerprint: str, photo: Path) -> str:
    """The text in the mask of a photo's file.

    Raises:
        OSError: it cannot be read.
    """
    return f"{fingerprint} {_source_of_file(photo)}"


def _source_of_file(photo: Path) -> str:
    with open_regular(photo) as file:
        status = os.fstat(file.fileno())
        return source_of(photo.name, status.st_size, status.st_mtime_ns, ends_of(file, status.st_size))


def is_done(mask: Path, photo: Path, fingerprint: str, encoding: Encoding | None = None) -> bool:
    """Is the mask whole, and does it say that it was made of this photo as it is, with this fingerprint?

    Where `encoding` is given, the mask must be written in it. A mask that does not say of which photo it is, as those
    of `Result.save_mask`, may be of another one.
    """
    try:
        with open_regular(mask) as file:
            head = file.read(HEAD)
            file.seek(-len(END), 2)
            if marked_size(head, file.read(), fingerprint, encoding=encoding) is None:
                return False
        return head_says(head, _source_of_file(photo))
    except (OSError, ValueError):  # not there, or shorter than a PNG
        return False


def head_says(head: bytes, source: str) -> bool:
    """Does a mask, of which these are the first bytes, say that it was made of this photo?"""
    found = size_and_text(head, MARK)
    return found is not None and found[1].partition(" ")[2] == source


def marked_size(
    head: bytes, tail: bytes, fingerprint: str, *, encoding: Encoding | None = None
) -> tuple[int, int] | None:
    """(H, W) of a mask with this fingerprint, read from its ends; None where it is another, or cut short.

    Args:
        head, tail: the first `HEAD` bytes, and as many of the last as `END` has.
        fingerprint: the one that it must have.
        encoding: the one that it must be written in; None: any.
    """
    found = size_and_text(head, MARK)
    if found is None or not tail.endswith(END) or not _is_in(head, encoding):
        return None
    return found[0] if found[1].partition(" ")[0] == fingerprint else None


def _is_in(head: bytes, encoding: Encoding | None) -> bool:
    """Is a mask written in this encoding? There is only one for more than 256 classes."""
    found = encoding_of(head)
    return encoding in (None, found) or (found == "gray" and head[HEADER - 9] == 16)

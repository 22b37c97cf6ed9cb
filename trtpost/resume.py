"""Which photos of an earlier run have their masks: a mask says of itself what it was made with.

So there is no list of finished photos that could be lost, or disagree with what is there. A few hundred bytes of a mask
and the header of its photo are read; nothing is decoded.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from trtpost.bundle import Contents
from trtpost.choices import Encoding
from trtpost.decode import size_in_header
from trtpost.image import MARK
from trtpost.png import END, HEADER, encoding_of, size_and_text

HEAD = 256
"""Bytes of a mask that hold its size and its mark."""

KIND = 2
"""Of what a fingerprint is made of; another number gives other fingerprints."""


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


def source_of(name: str, length: int) -> str:
    """Tells a photo from another one whose mask has the same name: 16 hex digits of its file's name and length."""
    return hashlib.sha256(f"{length} {name}".encode("utf-8", "surrogateescape")).hexdigest()[:16]


def mark_of(fingerprint: str, name: str, length: int) -> str:
    """The text in the mask of a photo file of this name and length."""
    return f"{fingerprint} {source_of(name, length)}"


def is_done(mask: Path, photo: Path, fingerprint: str, encoding: Encoding | None = None) -> bool:
    """True where the mask is whole, of the photo's size, no older than the photo, and has this fingerprint.

    A mask that says of which photo it is must be of this one; those that `Result.save_mask` writes do not say. Where
    `encoding` is given, the mask must be written in it.
    """
    try:
        status = photo.stat()
        if mask.stat().st_mtime_ns < status.st_mtime_ns:
            return False
        with mask.open("rb") as file:
            head = file.read(HEAD)
            file.seek(-len(END), 2)
            size = marked_size(head, file.read(), fingerprint, source_of(photo.name, status.st_size), encoding)
        if size is None:
            return False
        with photo.open("rb") as stream:
            return size_in_header(stream) == size
    except OSError:  # not there, or shorter than a PNG
        return False


def marked_size(
    head: bytes, tail: bytes, fingerprint: str, source: str | None = None, encoding: Encoding | None = None
) -> tuple[int, int] | None:
    """(H, W) of a mask with this fingerprint, of its first and last bytes; None where it is another, or cut short.

    Args:
        head, tail: the first `HEAD` bytes, and as many of the last as `END` has.
        fingerprint: that it must have.
        source: that it must not contradict: see `source_of`.
        encoding: that it must be written in; None: any.
    """
    found = size_and_text(head, MARK)
    if found is None or not tail.endswith(END) or not _is_in(head, encoding):
        return None
    made_with, _, made_of = found[1].partition(" ")
    return found[0] if made_with == fingerprint and made_of in ("", source or made_of) else None


def _is_in(head: bytes, encoding: Encoding | None) -> bool:
    """Is a mask written in this encoding? Of more than 256 classes there is only one."""
    found = encoding_of(head)
    return encoding in (None, found) or (found == "gray" and head[HEADER - 9] == 16)

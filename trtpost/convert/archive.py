"""Reads what is in a zip archive, within limits: an archive may hold a thousand times its own size, and more."""

from __future__ import annotations

import zipfile


def read_entry(archive: zipfile.ZipFile, entry: str | zipfile.ZipInfo, limit: int) -> bytes:
    """The content of a file in an archive.

    What the archive says of its size need not be true, so it is what comes out that counts. Other ways of compressing
    than deflate unpack whole blocks at once, to any size, and nobody writes models with them.

    Raises:
        KeyError: there is no file of that name.
        ValueError: it has more than `limit` bytes, or is compressed in another way.
    """
    info = archive.getinfo(entry) if isinstance(entry, str) else entry
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"its {info.filename} is compressed in an unusual way: pack it with deflate, or not at all")
    with archive.open(info) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"its {info.filename} has more than {limit >> 20} MiB, and nobody's is that long")
    return content

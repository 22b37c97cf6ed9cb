"""What people read on a terminal: everything printed goes through here, for a name in a file may hold anything.

Nothing that is printed moves the cursor, sets a title or a colour, begins another line, or turns the direction of
writing: what is no character to see becomes its escape. Tables are drawn by `trtpost.console`, which does the same.
"""

from __future__ import annotations

import sys

from trtpost.errors import one_line


def say(*lines: str, error: bool = False) -> None:
    """Print lines, each on one of its own; to stderr where they are errors."""
    for line in lines:
        print(one_line(line), file=sys.stderr if error else sys.stdout)


def say_json(text: str) -> None:
    """Print what `json.dumps` gave, whose texts are ASCII and escaped already."""
    print(text)  # noqa: T201

"""What goes to the terminal: text that is seen, and does nothing."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from trtpost.errors import one_line


class PlainConsole(Console):
    """A console on which no text acts: names of classes, files and tensors are whatever their files say.

    Styles are ours alone, by markup; what else would move the cursor or set a title becomes its escape.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """As rich does it, of text in which everything is to be seen."""
        return super().render_str("\n".join(map(one_line, text.split("\n"))), **options)


def as_markup(text: str) -> str:
    """Text from a file, as one line of markup that means just this."""
    return escape(one_line(text))

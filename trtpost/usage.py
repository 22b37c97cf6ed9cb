"""Wrong usage of the command line, in one sentence that says what would be right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any


def sentence(error: Any) -> str:
    """What was wrong, what it was meant to be, and where the rest can be read.

    Args:
        error: a usage error of the command line's library, which has `format_message()` and `ctx`.
    """
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "trtpost"
    message = str(error.format_message()).strip().rstrip(".")
    if found := re.fullmatch(
        r"Invalid value for (.+?): (?:Value error, )?'(.*)' is not one of (.+)", message, re.DOTALL
    ):
        names, given, listed = found.groups()
        choices = re.findall(r"'([^']*)'", listed)
        message = f"{_first(names)} must be one of {', '.join(choices)}, not '{given}'{_near(given, choices)}"
    elif found := re.match(r"No such option:? '?(-[^\s']*)", message):
        options = [name for one in context.command.params for name in one.opts] if context else []
        message = f"there is no option {found[1]}{_near(found[1], options)}"
    elif found := re.match(r"No such command '(.*?)'", message, re.DOTALL):
        commands = getattr(context.command, "commands", {}) if context else {}
        message = f"there is no command '{found[1]}'{_near(found[1], commands)}"
    elif found := re.match(r"Missing argument '(.*?)'", message):
        message = f"{found[1].strip('.').lower()} is missing"  # some versions write MODEL, or IMAGES...
    elif found := re.fullmatch(r"Invalid value for (.+?): (.+)", message, re.DOTALL):
        message = f"{_first(found[1])}: {found[2]}"
    return f"{message}; `{command} --help` shows what there is"


def _first(names: str) -> str:
    """Of `'--output' / '-o'` the first."""
    return names.split(" / ", maxsplit=1)[0].strip("'")


def _near(given: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(given, list(known), 1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""

"""Wrong usage of the command line, in one sentence that says what would be right."""

from __future__ import annotations

import re
from typing import Any

from trtpost.errors import did_you_mean


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
        message = f"{_first(names)} must be one of {', '.join(choices)}, not '{given}'{did_you_mean(given, choices)}"
    elif found := re.match(r"No such option:? '?(-[^\s']*)", message):
        options = [name for one in context.command.params for name in one.opts] if context else []
        message = f"there is no option {found[1]}{did_you_mean(found[1], options)}"
    elif found := re.match(r"No such command '(.*?)'", message, re.DOTALL):
        commands = getattr(context.command, "commands", {}) if context else {}
        message = f"there is no command '{found[1]}'{did_you_mean(found[1], commands)}"
    elif found := re.match(r"Missing argument '(.*?)'", message):
        message = f"{found[1].strip('.').lower()} is missing"  # some versions write MODEL, or IMAGES...
    elif found := re.match(r"Option '?(-[^\s']*)'? requires an argument", message):
        message = f"{found[1]} needs a value"
    elif found := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL):
        message = f"there is more than it takes: {found[1]}"
    elif found := re.fullmatch(r"Invalid value for (.+?): Input should be (.+?)(?:, unable to .*)?", message):
        message = f"{_first(found[1])} must be {found[2]}"
    elif found := re.fullmatch(r"Invalid value for (.+?): (.+)", message, re.DOTALL):
        message = f"{_first(found[1])}: {found[2]}"
    return f"{message}; `{command} --help` shows what there is"


def _first(names: str) -> str:
    """The first of `'--output' / '-o'`."""
    return names.split(" / ", maxsplit=1)[0].strip("'")

"""Where the command line starts: signals are in hand before anything heavy is imported."""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from trtpost.errors import TrtpostError

GRACE_SECONDS = 2.0
"""Time in which a process that was told to end cleans up by itself. The exception that ends it may be lost: Python only
prints one that is raised inside a finalizer or a callback of its own."""

_received: list[int] = []
"""The signal that ends this process."""


def main() -> None:
    """Run a command: faults that the user can mend become one sentence and exit code 1, Ctrl-C one word and 130."""
    signal.signal(signal.SIGTERM, _terminated)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # nohup and the like ignore it
        signal.signal(signal.SIGINT, _terminated)
    try:
        _run()
    finally:  # nothing is left to clean up while the interpreter ends
        gc.freeze()  # its last search for garbage takes 50 ms, for memory that the system frees at once
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is _terminated:
                signal.signal(number, signal.SIG_DFL)


def _run() -> None:
    try:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:  # closed by the caller
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
            elif hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # file names and terminals need not be UTF-8
        try:
            import warnings

            from trtpost.cli.app import app
            from trtpost.errors import DoubtWarning

            warnings.simplefilter("ignore", DoubtWarning)  # the commands print them in a line of their own

            status = app(prog_name="trtpost", standalone_mode=False)
        finally:
            sys.stdout.flush()
        if isinstance(status, int) and status:
            sys.exit(status)
    except BaseException as error:
        if _received:  # native code may have made another fault of the interrupt, while it was being imported say
            _end(_received[0])
        from trtpost.errors import TrtpostError

        if hasattr(error, "format_message"):  # the library's own; which module has it depends on its version
            _refuse(error)
        if not isinstance(error, (TrtpostError, OSError, MemoryError)):
            raise
        _tell(error)


def _tell(error: TrtpostError | OSError | MemoryError) -> NoReturn:
    """Tell a fault that the user can mend, in a sentence."""
    from trtpost.errors import TrtpostError

    if isinstance(error, TrtpostError):
        _fail(str(error))
    if isinstance(error, MemoryError):
        _fail(f"not enough memory{f': {error}' if str(error) else ''}; try smaller photos, or fewer at once")
    # the reader has gone or the disk is full: silence the interpreter's own complaint at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if not isinstance(error, BrokenPipeError):
        where = f" {error.filename}" if error.filename else ""
        _fail(f"cannot read or write{where}: {error.strerror or error}")
    sys.exit(1)


def _refuse(error: BaseException) -> NoReturn:
    """Tell wrong usage in a sentence; where nothing at all was asked for, show the help."""
    from trtpost.cli.usage import sentence

    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        sys.exit(2)
    _fail(sentence(error), 2)


def _fail(message: str, status: int = 1) -> NoReturn:
    from trtpost.errors import one_line

    print(f"trtpost: {one_line(message)}", file=sys.stderr)
    sys.exit(status)


def _terminated(number: int, _: object) -> None:
    if _received:  # a second exception would break into the cleaning up
        return
    _received.append(number)
    with contextlib.suppress(RuntimeError):  # no more threads: then the exception has to do
        # not `threading`, whose locks the interrupted code may hold
        _thread.start_new_thread(_end_late, (number,))
    raise SystemExit  # an exception, so that children are ended and files cleaned up


def _end_late(number: int) -> None:
    time.sleep(GRACE_SECONDS)
    _end(number)


def _end(number: int) -> NoReturn:
    if "trtpost.storage.whole_file" in sys.modules:  # other threads are writing still
        from trtpost.storage.whole_file import remove_unfinished

        remove_unfinished()
    if number == signal.SIGINT:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            import select

            error = sys.stderr.fileno()
            if select.select([], [error], [], 0)[1]:  # whom nobody reads would hold the process
                os.write(error, b"trtpost: interrupted\n")
    os._exit(128 + number)  # everything is cleaned up, and native code in another thread would hold the process

"""What the process that reads a model may do: compute, and write below one folder. Linux keeps it to that.

A second wall behind `trtpost.convert.operators`: TensorFlow's readers are large, and a damaged file may find a fault in
them. Landlock forbids writing elsewhere, seccomp forbids sockets; both are a few calls of the kernel, by ctypes. Where
the kernel has neither, the process goes on without, and `trtpost doctor` says so.

https://docs.kernel.org/userspace-api/landlock.html and seccomp_filter.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import sys
from pathlib import Path

CPU_SECONDS = 3600
"""Most seconds of one conversion. The largest networks that were seen take some minutes."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION, _PATH_BENEATH = 1, 1
_PDEATHSIG, _NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 1, 38, 22, 2

# of linux/landlock.h: writing, removing, making, and (by ABI) linking across folders, truncating
_WRITE_FILE, _ALL_WRITES = 1 << 1, sum(1 << bit for bit in (1, *range(4, 13)))
_REFER, _TRUNCATE = 1 << 13, 1 << 14

_SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""The name that seccomp has for each machine, and the number of `socket` there."""

_IO_URING_SETUP = 425  # by which sockets are made as well
_X32 = 0x40000000  # from here on, the numbers of x86-64's other interface


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction))]


def kinds() -> tuple[str, ...]:
    """The walls that this kernel has; none where it is no Linux, or has neither."""
    found = []
    if _landlock_version():
        found.append("Landlock")
    if sys.platform == "linux" and platform.machine() in _SOCKET and Path("/proc/sys/kernel/seccomp").is_dir():
        found.append("seccomp")
    return tuple(found)


def enclose(folder: Path, parent: int) -> None:
    """Keep this process, for ever, to writing below `folder`, without sockets, in a bounded time and memory.

    It ends with its parent. Whatever the kernel does not have is left out.

    Args:
        folder: where it may write.
        parent: process id of who started it.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)
    _limit()
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    _without_sockets(libc)
    _write_below(libc, folder)


def memory_limit() -> int:
    """Bytes that a conversion may have: three quarters of the machine's memory, so that others keep some."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4


def out_of_memory() -> str:
    """A sentence on a model that came to the limit, or to the end of the memory where there is no fence."""
    if sys.platform != "linux":
        return "converting it needs more memory than this machine has: convert it elsewhere, and give the ONNX file"
    return (
        f"converting it needs more than {memory_limit() / 1e9:.1f} GB of memory, three quarters of what this machine "
        "has: convert it on a larger one, and give the ONNX file"
    )


def _limit() -> None:
    """Limit the seconds of the processors, and memory; lower limits that the caller has set remain."""
    import resource

    # at the first of the two limits the signal says what it was
    wanted = {resource.RLIMIT_CPU: (CPU_SECONDS, CPU_SECONDS + 5), resource.RLIMIT_DATA: (memory_limit(),) * 2}
    for kind, limits in wanted.items():
        there = resource.getrlimit(kind)
        soft, hard = (
            new if old == resource.RLIM_INFINITY else min(new, old) for new, old in zip(limits, there, strict=True)
        )
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (min(soft, hard), hard))


def _without_sockets(libc: ctypes.CDLL) -> None:
    """Make `socket` fail with EACCES; processes of another architecture cannot call anything."""
    if platform.machine() not in _SOCKET:
        return
    architecture, socket = _SOCKET[platform.machine()]
    load, equal, least, give = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_RET|K
    refused, allowed = 0x00050000 | 13, 0x7FFF0000  # SECCOMP_RET_ERRNO | EACCES, SECCOMP_RET_ALLOW
    lines = [
        (load, 0, 0, 4),  # the architecture, in struct seccomp_data
        (equal, 0, 4, architecture),
        (load, 0, 0, 0),  # the number of the call
        (least, 2, 0, _X32),
        (equal, 1, 0, socket),
        (equal, 0, 1, _IO_URING_SETUP),
        (give, 0, 0, refused),
        (give, 0, 0, allowed),
    ]
    instructions = (_Instruction * len(lines))(*(_Instruction(*line) for line in lines))
    program = _Program(len(lines), instructions)
    libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)


def _landlock_version() -> int:
    """The kernel's ABI; 0 where it has no Landlock, or it is switched off."""
    if sys.platform != "linux":
        return 0
    version: int = ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    return max(version, 0)


def _write_below(libc: ctypes.CDLL, folder: Path) -> None:
    """Forbid writing, making and removing files anywhere but below `folder`, and in /dev/null."""
    version = _landlock_version()
    if not version:
        return
    handled = _ALL_WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    ruleset = libc.syscall(
        _CREATE_RULESET, ctypes.byref(_Ruleset(handled)), ctypes.c_size_t(ctypes.sizeof(_Ruleset)), 0
    )
    if ruleset < 0:
        return
    for place, allowed in ((folder, handled), (Path(os.devnull), _WRITE_FILE | (handled & _TRUNCATE))):
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(_Beneath(allowed, descriptor)), 0)
        os.close(descriptor)
    libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)

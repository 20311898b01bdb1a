"""A folder replaced at once: the new one is written elsewhere, synced, and exchanged with the old one."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from periplus.fetch.errors import mapped
from periplus.fetch.local.atomic import folder_locked, sync

RENAME_EXCHANGE, AT_FDCWD = 2, -100
"""As Linux defines them."""
UNABLE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
"""Errors of systems and file systems that cannot exchange names."""


def replace_folder(new: str, target: str) -> None:
    """Give the folder `new` the name `target`; a folder that had the name is called `new` afterwards.

    Whoever is killed at it leaves the old folder or the new one under the name. Where the system cannot exchange two
    names, the old folder is set aside for a moment; `restore_folder` brings it back.
    """
    parent = os.path.dirname(target)
    with mapped(target):
        for place, _, _ in os.walk(new):
            sync(place)
        with folder_locked(parent):
            _restore(target)
            if not os.path.isdir(target) or not os.listdir(target):
                os.rename(new, target)
            else:
                shutil.copymode(target, new)
                if not _exchange(new, target):
                    aside = f"{_prefix(target)}{secrets.token_hex(8)}"
                    os.rename(target, aside)
                    os.rename(new, target)
                    os.rename(aside, new)
        sync(parent)


def restore_folder(target: str) -> None:
    """Bring back a folder that a writer set aside and did not live to replace."""
    if not os.path.lexists(target) and os.path.isdir(os.path.dirname(target)) and _aside(target):
        with mapped(target), folder_locked(os.path.dirname(target)):
            _restore(target)


def _restore(target: str) -> None:
    """Rename what was set aside, or remove it where the folder was replaced."""
    for aside in _aside(target):
        if os.path.lexists(target):
            shutil.rmtree(aside)
        else:
            os.rename(aside, target)


def _prefix(target: str) -> str:
    """How the names begin under which the folder is set aside."""
    parent, name = os.path.split(target)
    return os.path.join(parent, f".replaced-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}-")


def _aside(target: str) -> list[str]:
    """Folders that were set aside, the last one first."""
    prefix = Path(_prefix(target))
    found: list[tuple[int, str]] = []
    with suppress(FileNotFoundError, PermissionError), os.scandir(prefix.parent) as entries:
        found = [(e.stat().st_ctime_ns, e.path) for e in entries if e.name.startswith(prefix.name) and e.is_dir()]
    return [path for _, path in sorted(found, reverse=True)]


def _exchange(one: str, other: str) -> bool:
    """Exchange the names of two folders in one step; False where the system cannot."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNABLE:
        return False
    raise OSError(number, os.strerror(number), other)

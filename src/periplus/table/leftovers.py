"""Leftovers of writers that died, beside or in a local index: removed; what the living hold is locked, and stays."""

from __future__ import annotations

import fcntl
import glob
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from periplus.errors import FormatError, LimitError, MissingError
from periplus.fetch.atomic import remove_leftovers
from periplus.fetch.door import mapped
from periplus.policy import canonical, is_local
from periplus.table.lock import locked

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.limits import Limits

PART = re.compile(r"part-[0-9a-f]{16}\.parquet")
UNLOCKED_SECONDS = 60
"""Age after which a spool that was never locked belongs to nobody: a living writer locks it at once."""


def sweep(url: str, *, fetch: Fetch, limits: Limits) -> None:
    """Remove unfinished files of an index, and the parts of a dataset that none of its commits lists."""
    plain = canonical(url)
    if not is_local(plain):
        return
    target = Path(plain)
    with mapped(plain):
        sweep_spools(target)
        if target.parent.is_dir():
            remove_leftovers(str(target.parent), target.name)
        if (target / "chunks").is_dir():
            remove_leftovers(str(target), "files.parquet")
            for left in (target / "chunks").glob(".part-*"):
                remove_unlocked(left)
    if (target / "chunks").is_dir():
        _sweep_parts(target, fetch, limits)


def _sweep_parts(folder: Path, fetch: Fetch, limits: Limits) -> None:
    """Parts that were written but never committed."""
    from periplus.table.open import glance

    with locked(f"{folder}/", fetch):
        try:
            listed = glance(str(folder), fetch=fetch, limits=limits).paths
        except MissingError:
            listed = frozenset()
        except (FormatError, LimitError):
            return  # not ours
        for path in (folder / "chunks").iterdir():
            if PART.fullmatch(path.name) and f"chunks/{path.name}" not in listed:
                remove_unlocked(path)


def spool_prefix(target: Path) -> str:
    """How the names of spool folders of an index begin."""
    return f".{target.name[:100]}.spool-"


def sweep_spools(target: Path) -> None:
    """Remove spool folders whose writer died."""
    for left in target.parent.glob(glob.escape(spool_prefix(target)) + "*"):
        remove_unlocked(left)


def remove_unlocked(left: Path) -> None:
    """Remove an unfinished file or folder whose writer died: its lock died with it."""
    try:
        if left.is_dir() and not (left / "lock").exists():
            if time.time() - left.stat().st_mtime > UNLOCKED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
            return
        with open(left / "lock" if left.is_dir() else left) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if left.is_dir():
                remove_spool(left)
            else:
                left.unlink(missing_ok=True)
    except OSError:
        return  # its writer lives, or another removed it first


def remove_spool(folder: Path) -> None:
    """Remove a spool folder, its lock last: if we die at it, the next writer can still tell that nobody holds it."""
    for left in folder.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        elif left.name != "lock":
            left.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)

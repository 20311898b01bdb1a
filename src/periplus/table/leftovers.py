"""Remove files of killed writers in or next to a local index; files of running writers are locked, and stay."""

from __future__ import annotations

import fcntl
import glob
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from periplus.errors import FormatError, LimitError, MissingError
from periplus.fetch.errors import mapped
from periplus.fetch.local.atomic import make_folder, remove_leftovers
from periplus.policy import canonical, is_local
from periplus.table.lock import locked

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.limits import Limits

PART = re.compile(r"part-[0-9a-f]{16}\.parquet")
FOLDERS = ("chunks", "placements")
"""Where the parts of a dataset are."""
LOCK = ".lock"
"""What the name of a spool folder's lock ends in."""


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
            sweep_unfinished(target)
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
        for name in FOLDERS:
            for path in (folder / name).glob("part-*"):
                if PART.fullmatch(path.name) and f"{name}/{path.name}" not in listed:
                    remove_unlocked(path)


def sweep_unfinished(folder: Path) -> None:
    """Remove parts of a dataset that a writer which died had begun."""
    for name in FOLDERS:
        for left in (folder / name).glob(".part-*"):
            remove_unlocked(left)


@contextmanager
def new_spool(target: Path) -> Iterator[Path]:
    """A folder next to a target for incomplete files; folders of killed writers are removed first.

    Its lock is a file beside it, made before the folder and removed after it: a folder without one is a leftover.
    """
    make_folder(str(target.parent))
    sweep_spools(target)
    while True:
        folder = target.parent / f"{_spool_prefix(target)}{secrets.token_hex(8)}"
        lock = folder.with_name(folder.name + LOCK)
        with lock.open("w") as held:
            try:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(held, fcntl.LOCK_EX)
                if not os.fstat(held.fileno()).st_nlink:
                    continue  # another writer took it for a leftover before it was locked
                folder.mkdir()
                yield folder
            finally:
                _remove_spool(folder)
        return


def _spool_prefix(target: Path) -> str:
    """How the names of spool folders of an index begin."""
    return f".{target.name[:100]}.spool-"


def sweep_spools(target: Path) -> None:
    """Remove spool folders whose writer died."""
    # Folders are listed before locks are looked at: one that has none by then has lost its writer.
    for left in sorted(target.parent.glob(glob.escape(_spool_prefix(target)) + "*")):
        if left.name.endswith(LOCK):
            remove_unlocked(left, left.with_name(left.name.removesuffix(LOCK)))
        elif not left.with_name(left.name + LOCK).exists():
            shutil.rmtree(left, ignore_errors=True)


def remove_unlocked(left: Path, folder: Path | None = None) -> None:
    """Remove an unfinished file whose writer died, and the folder it is the lock of: its lock died with it."""
    with suppress(OSError), left.open() as lock:  # its writer lives, or another removed it first
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder is None:
            left.unlink(missing_ok=True)
        else:
            _remove_spool(folder)


def _remove_spool(folder: Path) -> None:
    """Remove a spool folder, its lock last: if this is interrupted, the next writer still sees that nobody holds it."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        if not folder.exists():
            folder.with_name(folder.name + LOCK).unlink(missing_ok=True)

"""System calls of every writer fail: the index is the old or the new one, and the next run leaves nothing behind.

Here a seeded sample of the calls fails; `make faults` lets every call fail in every way.
"""

import errno
import os
import random
from pathlib import Path

import pytest

import periplus
from periplus.testing.failing_disk import ERRORS, INTERRUPT, KILLED, MEMORY, READS, FailingDisk, count_calls
from periplus.testing.processes import ForkedProgram
from periplus.testing.writers import WRITERS, Workspace, WriterCase

ALL = os.environ.get("PERIPLUS_FAULTS") == "all"
SEED = os.environ.get("PERIPLUS_FUZZ_SEED", "0")
SAMPLE, KILLS = 2, 1
FAULTS = {**ERRORS, INTERRUPT: INTERRUPT, MEMORY: MEMORY}
WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "quota",
    errno.EFBIG: "too large",
    errno.EMFILE: "too many open files",
    errno.EIO: "input/output error",
    errno.EACCES: "refuses access",
    MEMORY: "not enough memory",
}
CLEANING = {"unlink", "rmdir", "open"}
"""Calls without which a folder for temporary files cannot be removed."""
NATIVE = ("icechunk", "icechunk-new")
"""Writers whose files a native library writes."""

pytestmark = [pytest.mark.timeout(3600 if ALL else 600)]


def named(writers: list[WriterCase]) -> list:
    return [pytest.param(writer, id=writer.name) for writer in writers]


def cases(calls: list[str], seed: str) -> list[tuple[str, int, bool]]:
    """(fault, which call, whether it lasts): all of them, or a sample."""
    every = [
        (fault, at, lasting)
        for fault in FAULTS
        for at, call in enumerate(calls, 1)
        for lasting in (False, True)
        if fault != MEMORY or call in ("open", "write")
    ]
    return every if ALL else random.Random(f"{seed} {SEED}").sample(every, SAMPLE)


def fail(stage: Workspace, fault: str, at: int, lasting: bool) -> None:
    """One run with a fault, and one without."""
    stage.restore()
    error: BaseException | None = None
    disk = FailingDisk(stage.out, at=at, fault=FAULTS[fault], lasting=lasting)
    try:
        with disk:
            stage.write()
    except BaseException as raised:  # noqa: BLE001 - what was raised is judged below
        error = raised
    where = f"{fault} at call {at} ({disk.failed}){', lasting' if lasting else ''}"
    assert stage.state() in ((stage.after,) if error is None else (stage.before, stage.after)), where
    if error is not None and fault == INTERRUPT:
        assert isinstance(error, KeyboardInterrupt), where
    elif error is not None:
        assert isinstance(error, periplus.PeriplusError), (where, error)
        assert isinstance(error.__cause__, OSError | MemoryError), where
        assert WORDS[FAULTS[fault]] in str(error), (where, error)
    if disk.failed not in CLEANING:
        assert not list(stage.temporary.iterdir()), where
    stage.write()
    assert stage.state() == stage.after, where
    assert stage.listed() == stage.names, where


KILLED_WRITE = """
import sys, tempfile
from pathlib import Path
from periplus.testing.failing_disk import KILL, FailingDisk
from periplus.testing.processes import ForkedProgram
from periplus.testing.writers import WRITERS
name, out, archive, at = sys.argv[1:]
tempfile.tempdir = str(Path(out, "tmp"))
with FailingDisk(out, at=int(at), fault=KILL):
    next(one for one in WRITERS if one.name == name).write(Path(out), Path(archive))
"""
"""A write that ends the process at the n-th call."""


def kill(stage: Workspace, at: int, folder: Path) -> None:
    """A run that is killed, and one that is not."""
    stage.restore()
    given = (stage.writer.name, str(stage.out), str(stage.archive), str(at))
    code, _, errors = ForkedProgram(KILLED_WRITE, *given, folder=folder).end()
    assert code == KILLED, (at, errors)
    assert stage.state() in (stage.before, stage.after), f"killed at call {at}"
    stage.write()
    assert stage.state() == stage.after, f"killed at call {at}"
    assert stage.listed() == stage.names, f"killed at call {at}"


@pytest.mark.parametrize("writer", named([writer for writer in WRITERS if writer.name not in NATIVE]))
def test_a_write_that_fails_or_is_killed_leaves_the_old_or_the_new(writer, tmp_path):
    stage = Workspace(writer, tmp_path)
    stage.restore()
    with count_calls(stage.out) as calls:
        stage.write()
    # Two folders are exchanged by a call of the system that Python has no function for.
    assert {"open", "write", "fsync", *(() if writer.name == "kerchunk-parquet" else ("replace",))} <= set(calls)
    for fault, at, lasting in cases(calls, writer.name):
        fail(stage, fault, at, lasting)
    every = range(1, len(calls) + 1)
    for at in every if ALL else random.Random(f"{writer.name} {SEED}").sample(every, KILLS):
        kill(stage, at, tmp_path)


@pytest.mark.parametrize("writer", [one for one in WRITERS if one.name in NATIVE], ids=NATIVE)
@pytest.mark.parametrize("when", ["before the commit", "the commit"])
def test_a_commit_to_icechunk_that_fails_leaves_the_old_or_none(writer, when, tmp_path, monkeypatch):
    import icechunk

    from periplus.fetch import Fetch
    from periplus.zarr.icechunk import write as icewrite

    stage = Workspace(writer, tmp_path)
    stage.restore()

    def full(*_args, **_options):
        raise icechunk.IcechunkError("storage error: No space left on device (os error 28)")

    async def stuck(*_args, **_options):
        raise periplus.FetchError("cannot be removed")

    with monkeypatch.context() as patch:
        patch.setattr(*((icechunk.Session, "commit") if when == "the commit" else (icewrite._Writer, "write")), full)
        patch.setattr(Fetch, "delete", stuck)  # what is cleaned up after a failure hides none
        with pytest.raises(periplus.FetchError, match="the disk is full") as caught:
            stage.write()
    assert isinstance(caught.value.__cause__, icechunk.IcechunkError)
    if stage.before is not None:
        assert stage.state() == stage.before
    stage.write()
    assert stage.state() == stage.after


@pytest.mark.parametrize("fault", [*ERRORS, MEMORY])
def test_reading_fails_with_an_error_of_ours(fault, tmp_path):
    stage = Workspace(next(one for one in WRITERS if one.name == "dataset-append"), tmp_path)
    which = READS & {"open", "read", "pread", "preadv"} if fault == MEMORY else READS
    with count_calls(stage.out.parent, calls=which) as calls:
        assert stage.state() == stage.after
    every = range(1, len(calls) + 1)
    for at in every if ALL else random.Random(f"{fault} {SEED}").sample(every, min(3, len(every))):
        with FailingDisk(stage.out.parent, at=at, fault=FAULTS[fault], calls=which) as disk:
            error = refusal(stage)
        if error is not None:
            assert WORDS[FAULTS[fault]] in str(error), (at, disk.failed, error)
            assert isinstance(error.__cause__, OSError | MemoryError), (at, disk.failed)


def refusal(stage: Workspace) -> periplus.PeriplusError | None:
    """Why the new index cannot be read; None where it can: not all that a disk is asked for is needed."""
    try:
        assert stage.state() == stage.after
    except periplus.PeriplusError as error:
        return error
    return None

"""Running again: what is known is not read again, a stack grows by a part, what was interrupted goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from periplus.errors import ConflictError, FormatError
from periplus.fetch import Fetch
from periplus.harvest import index_into
from periplus.harvest import run as run_module
from periplus.table import Table
from periplus.testing.tamper import change_column, tamper

PATTERN = r"(?P<time>\d{8})"


def days(folder: Path, tiff: SimpleNamespace, *numbers: int, **options: Any) -> None:
    for k in numbers:
        tiff.write(folder / f"x_202101{k:02d}.tif", k, **options)


def content(table: Table) -> dict[str, Any]:
    """Everything an index says, in an order of its own."""
    files = table.files
    result: dict[str, Any] = {"files": sorted(zip(files.path, files.size.tolist(), files.status, strict=True))}
    for name, array in table.catalog.arrays.items():
        refs = table.refs(name)
        owners = [files.path[k] for k in refs.file.tolist()] if refs.file is not None else []
        codes = np.zeros(len(refs), int) if refs.encoding is None else refs.encoding
        encodings = [str(array.encodings[c]) for c in codes.tolist()]
        rows = zip(*refs.chunk.tolist(), owners, refs.offset.tolist(), refs.length.tolist(), encodings, strict=True)
        result[name] = (array.dims, array.shape, str(array.dtype), str(array.fill), dict(array.attributes), list(rows))
    for dim, coordinate in table.catalog.coordinates.items():
        result[f"dim {dim}"] = coordinate.values.tolist()
    return result


def fresh(fetch: Fetch, urls: Any, **options: Any) -> dict[str, Any]:
    return content(index_into(urls, fetch=fetch, **options)[0])


@pytest.mark.parametrize("target", ["out.parquet", "out"])
@pytest.mark.parametrize("pattern", [PATTERN, None])
def test_unchanged_files_are_not_read_again(
    tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str], target: str, pattern: str | None
) -> None:
    days(tmp_path / "in", tiff, 1, 2, 3)
    glob, to = str(tmp_path / "in" / "*.tif"), tmp_path / target
    options: dict[str, Any] = {"fetch": fetch, "pattern": pattern}
    first = content(index_into(glob, to=to, **options)[0])
    stamp = (to if to.is_file() else to / "files.parquet").stat().st_mtime_ns
    read.clear()
    table, summary = index_into(glob, to=to, **options)
    assert read == []
    assert summary.reused == summary.ok == 3
    assert content(table) == first
    assert (to if to.is_file() else to / "files.parquet").stat().st_mtime_ns == stamp, "nothing was written"

    days(tmp_path / "in", tiff, 2, size=128)  # one changed
    days(tmp_path / "in", tiff, 1, 3, size=128)
    os.utime(tmp_path / "in" / "x_20210102.tif", ns=(1, 1))
    read.clear()
    table, summary = index_into(glob, to=to, **options)
    assert len(read) == 3
    assert content(table) == fresh(fetch, glob, pattern=pattern)


@pytest.mark.parametrize("target", ["out.parquet", "out"])
@pytest.mark.parametrize("pattern", [PATTERN, None])
def test_only_what_changed_is_read(
    tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str], target: str, pattern: str | None
) -> None:
    folder = tmp_path / "in"
    days(folder, tiff, 2, 4, 6)
    glob, to = str(folder / "*.tif"), tmp_path / target
    index_into(glob, fetch=fetch, to=to, pattern=pattern)
    days(folder, tiff, 3)
    tiff.write(folder / "x_20210104.tif", 44, compress="lzw")
    (folder / "x_20210106.tif").unlink()
    (folder / "x_20210107.tif").write_text("bad")
    read.clear()
    table, summary = index_into(glob, fetch=fetch, to=to, pattern=pattern)
    assert sorted(read) == ["x_20210103.tif", "x_20210104.tif", "x_20210107.tif"]
    assert (summary.ok, summary.failed, summary.reused) == (3, 1, 1)
    assert content(table) == fresh(fetch, glob, pattern=pattern)
    read.clear()
    table, summary = index_into(glob, fetch=fetch, to=to, pattern=pattern)
    assert read == ["x_20210107.tif"], "what failed is tried again"
    assert summary.failed == 1


def test_files_that_left_the_index_are_counted(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch) -> None:
    days(tmp_path, tiff, 1, 2, 3, 4)
    options: dict[str, Any] = {"to": str(tmp_path / "i.parquet"), "fetch": fetch, "pattern": PATTERN}
    _, summary = index_into(f"{tmp_path}/*.tif", **options)
    assert (summary.files, summary.gone) == (4, 0)
    (tmp_path / "x_20210102.tif").unlink()
    days(tmp_path, tiff, 5)
    _, summary = index_into(f"{tmp_path}/*.tif", **options)
    assert (summary.files, summary.reused, summary.gone) == (4, 3, 1)
    _, summary = index_into(f"{tmp_path}/*5.tif", **options, append=True)
    assert summary.gone == 0
    _, summary = index_into(f"{tmp_path}/*5.tif", **options)
    assert (summary.files, summary.gone) == (1, 3)
    assert "3 removed from the index" in str(summary)


def test_later_files_are_added_as_a_part(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str]) -> None:
    folder, to = tmp_path / "in", tmp_path / "out"
    days(folder, tiff, 1, 2)
    glob = str(folder / "*.tif")
    index_into(glob, fetch=fetch, to=to, pattern=PATTERN)
    parts = {p.name: p.stat().st_mtime_ns for p in (to / "chunks").iterdir()}
    days(folder, tiff, 3, 4, compress="lzw")
    read.clear()
    table, summary = index_into(glob, fetch=fetch, to=to, pattern=PATTERN)
    assert read == ["x_20210103.tif", "x_20210104.tif"]
    now = {p.name: p.stat().st_mtime_ns for p in (to / "chunks").iterdir()}
    assert parts.items() < now.items(), "old parts are as they were"
    assert summary.reused == 2
    assert content(table) == fresh(fetch, glob, pattern=PATTERN)
    days(folder, tiff, 5)
    table, _ = index_into(glob, fetch=fetch, to=to, pattern=PATTERN)
    assert content(table) == fresh(fetch, glob, pattern=PATTERN)


def test_where_only_the_order_counts_it_is_kept(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch) -> None:
    days(tmp_path, tiff, 1, 2, 3, 4)
    a, b, c, d = (str(tmp_path / f"x_2021010{k}.tif") for k in (1, 2, 3, 4))
    options: dict[str, Any] = {"fetch": fetch, "arrange": "stack"}
    parts = []
    for urls in ([a, c], [a, c, d], [a, b, c, d], [d, c, b, a]):
        table, _ = index_into(urls, to=tmp_path / "out", **options)
        assert content(table) == fresh(urls=urls, **options)
        parts.append({path.name for path in (tmp_path / "out" / "chunks").iterdir()})
    assert parts[0] < parts[1]


def test_a_collection_grows_by_a_part(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str]) -> None:
    folder, to = tmp_path / "in", tmp_path / "out"
    days(folder, tiff, 1, 2)
    (folder / "bad.tif").write_text("bad")
    glob = str(folder / "*.tif")
    index_into(glob, fetch=fetch, to=to)
    parts = {p.name for p in (to / "chunks").iterdir()}
    days(folder, tiff, 3)
    read.clear()
    table, _ = index_into(glob, fetch=fetch, to=to)
    assert sorted(read) == ["bad.tif", "x_20210103.tif"]
    assert parts < {p.name for p in (to / "chunks").iterdir()}
    assert content(table) == fresh(fetch, glob)
    (folder / "sub").mkdir()
    days(folder / "sub", tiff, 4)
    table, _ = index_into(str(folder / "**/*.tif"), fetch=fetch, to=to)
    assert content(table) == fresh(fetch, str(folder / "**/*.tif"))


def test_a_stack_whose_pattern_is_none_is_laid_anew(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch) -> None:
    days(tmp_path, tiff, 1, 2, 3)
    to, more = tmp_path / "out", {"arrange": "stack", "pattern": PATTERN}
    index_into(str(tmp_path / "x_2021010[12].tif"), fetch=fetch, to=to, **more)
    tamper(to, document=lambda said: said["arrangement"].update(pattern=7))
    table, _ = index_into(tmp_path / "x_20210103.tif", fetch=fetch, to=to, append=True, **more)
    assert table.catalog.arrays["0/data"].shape[0] == 3
    assert table.catalog.arrangement["pattern"] == PATTERN


@pytest.mark.parametrize("groups", [["a", "b"], ["x_20210101"] * 2, [None, None], ["x_20210101", "../b"]])
def test_an_index_whose_groups_make_no_sense_is_laid_anew_but_not_added_to(
    groups: Any, tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch
) -> None:
    days(tmp_path, tiff, 1, 2, 3)
    to = tmp_path / "out"
    index_into(str(tmp_path / "x_2021010[12].tif"), fetch=fetch, to=to, arrange="collect")
    tamper(to, files=change_column("group", lambda _: groups))
    with pytest.raises(ConflictError, match="cannot append to an index of this arrangement"):
        index_into(tmp_path / "x_20210103.tif", fetch=fetch, to=to, arrange="collect", append=True)
    table, summary = index_into(str(tmp_path / "x_2021010[12].tif"), fetch=fetch, to=to, arrange="collect")
    assert summary.ok == 2
    assert table.files.columns["group"].tolist() == ["x_20210101", "x_20210102"]


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_of_two_that_add_to_an_index_at_once_none_undoes_the_other(
    name: str, tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(tmp_path, tiff, 1, 2, 3)
    to, real = str(tmp_path / name), run_module.IndexRun._write

    def add(day: int) -> Table:
        return index_into(tmp_path / f"x_2021010{day}.tif", fetch=fetch, to=to, arrange="collect", append=True)[0]

    def between(*args: Any) -> Any:
        monkeypatch.setattr(run_module.IndexRun, "_write", real)
        add(2)  # after the other has opened the index
        return real(*args)

    add(1)
    monkeypatch.setattr(run_module.IndexRun, "_write", between)
    with pytest.raises(ConflictError, match="another writer"):
        add(3)
    assert len(add(3).files) == 3


@pytest.mark.parametrize("name", ["out", "out.parquet", "out.duckdb"])
def test_of_two_that_begin_an_index_by_adding_to_it_none_undoes_the_other(
    name: str, tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(tmp_path, tiff, 1, 2)
    to, real = str(tmp_path / name), run_module.IndexRun._write

    def add(day: int) -> Table:
        return index_into(tmp_path / f"x_2021010{day}.tif", fetch=fetch, to=to, arrange="collect", append=True)[0]

    def between(*args: Any) -> Any:
        monkeypatch.setattr(run_module.IndexRun, "_write", real)
        add(1)  # after the other saw that there is none
        return real(*args)

    monkeypatch.setattr(run_module.IndexRun, "_write", between)
    with pytest.raises(ConflictError, match="exists"):
        add(2)
    assert len(add(2).files) == 2


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_what_is_read_anew_and_added_takes_nothing_away(
    name: str, tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str]
) -> None:
    days(tmp_path, tiff, 1, 2, 3)
    to, more = str(tmp_path / name), {"fetch": fetch, "arrange": "collect", "append": True}
    index_into([tmp_path / "x_20210101.tif", tmp_path / "x_20210102.tif"], to=to, **more)
    read.clear()
    table, summary = index_into(
        [tmp_path / "x_20210102.tif", tmp_path / "x_20210103.tif"], to=to, refresh="always", **more
    )
    assert sorted(read) == ["x_20210102.tif", "x_20210103.tif"]
    assert sorted(Path(path).name for path in table.files.path) == [f"x_2021010{day}.tif" for day in (1, 2, 3)]
    assert summary.gone == 0


@pytest.mark.parametrize("target", ["out.parquet", "out"])
@pytest.mark.parametrize("pattern", [PATTERN, None])
def test_append_keeps_what_was_there(
    tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str], target: str, pattern: str | None
) -> None:
    folder, to = tmp_path / "in", tmp_path / target
    days(folder, tiff, 3, 4)
    index_into(str(folder / "*.tif"), fetch=fetch, to=to, pattern=pattern)
    days(folder, tiff, 5, 1)
    read.clear()
    for k in (5, 1):
        table, _ = index_into(folder / f"x_2021010{k}.tif", fetch=fetch, to=to, pattern=pattern, append=True)
    assert read == ["x_20210105.tif", "x_20210101.tif"]
    assert content(table) == fresh(fetch, [str(folder / f"x_2021010{k}.tif") for k in (3, 4, 5, 1)], pattern=pattern)
    replaced, _ = index_into(folder / "x_20210101.tif", fetch=fetch, to=to, pattern=pattern)
    assert len(replaced.files) == 1, "without append an index holds what was asked for"


def test_another_arrangement_of_the_same_harvest(
    tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str]
) -> None:
    folder, to = tmp_path / "in", tmp_path / "out.parquet"
    days(folder, tiff, 1, nodata=0, scale=0.5)
    days(folder, tiff, 2, nodata=7, compress="lzw")
    glob = str(folder / "*.tif")
    for options in ({"pattern": PATTERN}, {}, {"arrange": "stack"}, {"pattern": PATTERN}, {"arrange": "collect"}):
        want = fresh(fetch, glob, **options)
        read.clear()
        table, _ = index_into(glob, fetch=fetch, to=to, **options)
        assert read == [] or not (tmp_path / "seen").exists()
        assert content(table) == want
        (tmp_path / "seen").touch()


def test_refresh_never_and_always(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str]) -> None:
    folder, to = tmp_path / "in", tmp_path / "out.parquet"
    days(folder, tiff, 1, 2)
    glob = str(folder / "*.tif")
    index_into(glob, fetch=fetch, to=to)
    days(folder, tiff, 1, size=64)
    read.clear()
    index_into(glob, fetch=fetch, to=to, refresh="never")
    assert read == []
    index_into(glob, fetch=fetch, to=to, refresh="always")
    assert len(read) == 2


def test_what_is_no_index_is_not_replaced(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch) -> None:
    days(tmp_path, tiff, 1)
    (tmp_path / "out.parquet").write_text("my thesis")
    with pytest.raises(FormatError):
        index_into(str(tmp_path / "*.tif"), fetch=fetch, to=tmp_path / "out.parquet")
    assert (tmp_path / "out.parquet").read_text() == "my thesis"


def test_a_conflict_keeps_the_journal_for_another_try(
    tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("periplus.harvest.parts.gather.PART_FILES", 1)
    days(tmp_path, tiff, 1, 2)
    days(tmp_path, tiff, 3, size=64)
    options: dict[str, Any] = {"fetch": fetch, "to": tmp_path / "out", "arrange": "stack", "pattern": PATTERN}
    with pytest.raises(ConflictError):
        index_into(str(tmp_path / "*.tif"), **options)
    assert (tmp_path / "out.partial").is_dir()
    read.clear()
    _, summary = index_into(str(tmp_path / "*.tif"), skip_misfits=True, **options)
    assert read == []
    assert summary.reused == 3
    assert not (tmp_path / "out.partial").exists()


RUN = """
import signal, sys, time
from periplus.fetch import Fetch
from periplus.harvest import index_into
from periplus.harvest.parts import gather
from periplus.harvest.scanning import stream
gather.PART_FILES = 5
real = stream.harvest_local
def slow(*a, **k):
    time.sleep(0.02)
    return real(*a, **k)
stream.harvest_local = slow
stream.BATCH = 1
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may ignore it
    with Fetch() as fetch:
        index_into(sys.argv[1], fetch=fetch, to=sys.argv[2], pattern=r"(?P<time>\\d{8})")
"""


@pytest.mark.parametrize(("how", "before"), [(signal.SIGINT, True), (signal.SIGKILL, False)])
def test_an_interrupted_run_is_completed_by_the_next(
    tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, read: list[str], how: signal.Signals, before: bool
) -> None:
    folder, to = tmp_path / "in", tmp_path / "out.parquet"
    days(folder, tiff, 1)
    one = folder / "x_20210101.tif"
    for k in range(2, 29):
        shutil.copyfile(one, folder / f"x_202101{k:02d}.tif")
    glob = str(folder / "*.tif")
    if before:
        index_into(one, fetch=fetch, to=to, pattern=PATTERN)
    old = to.read_bytes() if before else None
    script = tmp_path / "run.py"
    script.write_text(RUN)
    process = subprocess.Popen([sys.executable, str(script), glob, str(to)], stderr=subprocess.PIPE)
    journal = tmp_path / "out.parquet.partial"
    deadline = time.monotonic() + 60
    while not any(journal.glob("part-*")):
        if process.poll() is not None:
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    if how == signal.SIGINT and process.returncode:
        assert "KeyboardInterrupt" in errors.decode()
    if (to.read_bytes() if to.exists() else None) != old:  # a busy machine: it was done before the signal came
        assert content(index_into(glob, fetch=fetch, to=to, pattern=PATTERN)[0]) == fresh(fetch, glob, pattern=PATTERN)
        return
    assert process.returncode
    read.clear()
    table, summary = index_into(glob, fetch=fetch, to=to, pattern=PATTERN)
    assert len(read) < 28  # none, where the interrupt was answered only when all were read
    assert summary.reused == 28 - len(read)
    assert content(table) == fresh(fetch, glob, pattern=PATTERN)
    assert not journal.exists()

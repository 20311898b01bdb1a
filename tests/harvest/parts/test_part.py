"""Parts: what goes in comes out, in memory, from bytes and from a journal; damage is noticed."""

from __future__ import annotations

import sys
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from periplus.errors import FormatError
from periplus.fetch import Fetch
from periplus.harvest.inputs import Input
from periplus.harvest.parts.file import VERSION, read_part, write_part
from periplus.harvest.parts.gather import ArrayPool, Gathered
from periplus.harvest.parts.journal import Journal
from periplus.harvest.parts.part import FileFacts, HarvestPart
from periplus.harvest.scanning.drive import Harvested
from periplus.limits import Limits
from periplus.model import Array, Encoding, Found, Georeference, Inline, Refs, Source, chunk_positions
from periplus.testing.indexes import inline_list, same_refs


def array(name: str = "0/data", **more: Any) -> Array:
    settings: dict[str, Any] = {
        "dims": ("bands", "y", "x"),
        "shape": (1, 40, 40),
        "chunks": (1, 20, 20),
        "dtype": np.dtype(np.float32),
        "fill": float("nan"),
        "attributes": {"_FillValue": float("nan"), "units": "K"},
        "encodings": (Encoding(({"name": "bytes", "configuration": {"endian": "little"}},)),),
        "georeference": Georeference(crs="EPSG:4326", transform=(1.0, 0.0, 0.0, 0.0, -1.0, 0.0)),
    }
    return Array(name=name, **{**settings, **more})


def whole(seed: int) -> Refs:
    rng = np.random.default_rng(seed)
    return Refs(chunk=chunk_positions((1, 2, 2)), offset=rng.integers(0, 1 << 40, 4), length=rng.integers(1, 99, 4))


def sparse() -> Refs:
    return Refs(
        chunk=np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0]], np.int32),
        offset=np.array([5, 0, 7]),
        length=np.array([1, 3, 9]),
        part=np.array([0, 1, 0], np.uint16),
        encoding=np.array([1, 0, 0], np.uint16),
        inline=Inline.of([None, b"abc", None]),
    )


def harvested(url: str, *founds: Found, number: int = 0, **more: Any) -> Harvested:
    moment = datetime(2021, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    source = Source(url=url, size=1000, etag='"e"', last_modified=moment)
    return Harvested(
        input=Input(url=url), source=source, format="tiff", datetime=moment, founds=founds, number=number, **more
    )


def files() -> list[Harvested]:
    return [
        harvested("/d/a.tif", Found(array(), whole(1)), Found(array("1/data", level=1), whole(2)), number=1),
        harvested("/d/b.tif", Found(array(), sparse()), number=0, attributes={"sensor": "x", "gain": float("inf")}),
        harvested("/d/c.tif", number=2, error="format: no"),
        harvested("/d/d.tif", Found(array(), whole(3)), number=3),
    ]


def same(a: Refs, b: Refs) -> bool:
    def equal(x: Any, y: Any) -> bool:
        return x is None and y is None if x is None or y is None else np.array_equal(x, y)

    names = ("chunk", "offset", "length", "part", "encoding")
    return all(equal(getattr(a, n), getattr(b, n)) for n in names) and inline_list(a) == inline_list(b)


def check(part: HarvestPart, facts: list[FileFacts] | None = None) -> None:
    a, b, d = part.arrays
    assert a[1].name == "1/data"
    assert np.isnan(a[0].attributes["_FillValue"])
    assert a[0].georeference == array().georeference
    assert a[0] is b[0] is d[0]
    if facts is not None:
        assert facts[0].source == files()[0].source
        assert facts[0].datetime == files()[0].datetime
        assert facts[1].attributes == {"sensor": "x", "gain": float("inf")}
    assert same(part.refs(0, 0), whole(1))
    assert same(part.refs(0, 1), whole(2))
    assert same(part.refs(1, 0), sparse())
    assert same(part.refs(2, 0), whole(3))


def gathered(keep: Any = None) -> Gathered:
    made = Gathered() if keep is None else Gathered(keep=keep)
    for file in files():
        made.add(file)
    return made


def test_a_part_keeps_what_it_was_given() -> None:
    parts: list[tuple[HarvestPart, list[FileFacts]]] = []

    def keep(part: HarvestPart, facts: list[FileFacts]) -> HarvestPart:
        parts.append((part, facts))
        return part

    gathered(keep).flush()
    check(*parts[0])
    check(*read_part(memoryview(write_part(*parts[0])), limits=Limits()))


def test_entries_come_back_in_the_order_asked_for() -> None:
    made = gathered()
    made.finish()
    assert [e.source.url for e in made.entries] == ["/d/b.tif", "/d/a.tif", "/d/c.tif", "/d/d.tif"]
    assert same(made.refs(0, 0), sparse())
    assert same(made.refs(3, 0), whole(3))
    assert made.entries[2].error == "format: no"
    assert made.entries[1].arrays[:1] == made.entries[3].arrays


def test_equal_descriptions_are_one_object() -> None:
    pool = ArrayPool()
    one, two, other = (pool.arrays((array(fill=fill),)) for fill in (float("nan"), float("nan"), 1.0))
    assert one is two
    assert one is not other


def test_a_journal_gives_its_parts_back(tmp_path: Path, fetch: Fetch) -> None:
    target = str(tmp_path / "out.parquet")
    journal = Journal(target, fetch, limits=Limits())
    assert journal.load() == []
    gathered(journal.add).flush()
    (file,) = (tmp_path / "out.parquet.partial").iterdir()
    ((part, facts),) = Journal(target, fetch, limits=Limits()).load()
    check(part, facts)
    assert part.maps
    part.release()
    check(part)
    journal.clear()
    assert list(tmp_path.iterdir()) == []
    assert not file.exists()


def test_a_remote_journal(fetch: Fetch) -> None:
    target = "memory://runs/out"
    journal = Journal(target, fetch, limits=Limits())
    gathered(journal.add).flush()
    other = Journal(target, fetch, limits=Limits())
    check(*other.load()[0])
    other.clear()
    assert Journal(target, fetch, limits=Limits()).load() == []
    journal.close()


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "version"])
def test_damaged_parts_are_passed_over(tmp_path: Path, fetch: Fetch, harm: str) -> None:
    journal = Journal(str(tmp_path / "out"), fetch, limits=Limits())
    gathered(journal.add).flush()
    (path,) = (tmp_path / "out.partial").iterdir()
    data = bytearray(path.read_bytes())
    if harm == "cut":
        data = data[:-20]
    elif harm == "flip":
        data[40] ^= 1
    elif harm == "empty":
        data = bytearray()
    else:
        data = data.replace(f'{{"version": {VERSION}'.encode(), b'{"version": 9')
        data[-12:-8] = zlib.crc32(data[:-12]).to_bytes(4, "little")
        with pytest.raises(FormatError, match="another version"):
            read_part(memoryview(bytes(data)), limits=Limits())
    path.write_bytes(data)
    again = Journal(str(tmp_path / "out"), fetch, limits=Limits())
    assert again.load() == []
    assert again.damaged == 1


def test_parts_are_handed_over_when_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("periplus.harvest.parts.gather.PART_FILES", 2)
    sizes: list[int] = []

    def keep(part: HarvestPart, facts: list[FileFacts]) -> HarvestPart:
        sizes.append(len(facts))
        return part

    made = Gathered(keep=keep)
    for k in range(5):
        made.add(harvested(f"/d/{k}.tif", Found(array(), whole(k)), number=5 - k))
    made.finish()
    assert sizes == [2, 2]
    assert [e.source.url for e in made.entries] == [f"/d/{k}.tif" for k in (4, 3, 2, 1, 0)]
    assert all(same(made.refs(k, 0), whole(4 - k)) for k in range(5))


def test_an_interrupt_at_any_line_leaves_whole_files_only() -> None:
    """Ctrl-C may come between any two steps; what is then written down must not hold half a file."""
    data, mask = array(), array("0/mask")
    files = [
        harvested(f"s3://b/{n}", Found(data, whole(n)), Found(mask, sparse() if n % 2 else whole(n + 50)), number=n)
        for n in range(3)
    ]
    built = Gathered()
    for file in files:
        built.add(file)
    built.finish()
    moments = 0
    while (kept := interrupted(files, moments)) is not None:
        for part, facts in kept:
            back, same = read_part(memoryview(write_part(part, facts)), limits=Limits())
            assert [fact.source.url for fact in same] == [file.source.url for file in files[: len(same)]]
            for slot in range(len(same)):
                for which in (0, 1):
                    same_refs(back.refs(slot, which), built.refs(slot, which))
        moments += 1
    assert moments > 50


def interrupted(files: list[Harvested], lines: int) -> list[tuple[HarvestPart, list[FileFacts]]] | None:
    """What is kept of files when an interrupt comes after so many lines of gathering; None if it comes too late."""
    kept: list[tuple[HarvestPart, list[FileFacts]]] = []
    gathered = Gathered(keep=lambda part, facts: kept.append((part, list(facts))) or part)
    steps = 0

    def interrupt(frame: Any, event: str, _: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename.endswith(("part.py", "gather.py")):
            steps += event == "line"
            if steps > lines:
                sys.settrace(None)
                raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    try:
        sys.settrace(interrupt)
        for file in files:
            gathered.add(file)
        return None
    except KeyboardInterrupt:
        sys.settrace(before)
        gathered.flush()
        return kept
    finally:
        sys.settrace(before)


def test_a_part_that_lists_more_than_it_holds_is_damaged() -> None:
    gathered = Gathered()
    gathered.add(harvested("s3://b/0", Found(array(), whole(1))))
    gathered.finish()
    part = gathered._parts[0]
    for name, column in (("groups", [0]), ("pieces", []), ("slots", [0, 2]), ("pieces", [0, 9, -1, 0, 0, -1])):
        lying = HarvestPart(arrays=part.arrays, columns={**part.columns, name: np.array(column, np.int64)})
        facts = [FileFacts(source=Source(url="s3://b/0"), format="tiff", datetime=None, attributes={})]
        with pytest.raises(FormatError, match=r"lists|damaged"):
            read_part(memoryview(write_part(lying, facts)), limits=Limits())

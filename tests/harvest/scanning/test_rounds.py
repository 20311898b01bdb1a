"""Rounds of several ranges and listings below a folder: in memory, on disk, over HTTP and on an object store."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from periplus import scan
from periplus.errors import DeniedError, FormatError, LimitError, MissingError, PeriplusError
from periplus.fetch import Fetch
from periplus.harvest.inputs import Input
from periplus.harvest.scanning.drive import Harvested, harvest_local, harvest_remote
from periplus.harvest.scanning.head import HeadSize
from periplus.limits import Limits
from periplus.model import About, Array, FirstSidecar, FolderListing, Found, Need, Refs, Source
from periplus.policy import Policy
from periplus.scan.drive import scan_bytes
from periplus.testing.servers.http import Fault, RangeServer, S3Server

Asking = Callable[[Source], Generator[Any, Any, dict[str, Any]]]
BODY = b"STORE" + np.random.default_rng(0).bytes(3 << 20)
FILES = {
    "s/root.st": BODY,
    "s/a/part": b"part of a",
    "s/a/.hidden": b"hidden",
    "s/b/c/[x]*": b"deep",
    "s/b.txt": b"text",
    "other": b"not below",
}
INSIDE = sorted(name.removeprefix("s/") for name in FILES if name.startswith("s/"))


class Store:
    """A format whose scan is the asking of a test."""

    NAME = "store"

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def scan(self, source: Source, limits: Limits) -> Generator[Any, Any, None]:
        attributes = yield from self._asking(source)
        yield About(attributes=attributes)
        array = Array(name="0/data", dims=("x",), shape=(1,), chunks=(1,), dtype=np.dtype(np.uint8))
        refs = Refs(chunk=np.zeros((1, 1), np.int32), offset=np.array([0]), length=np.array([1]))
        yield Found(array, refs, sidecar=attributes.get("sidecar", ""))


class Place:
    """Where the files are, and how one of them is scanned."""

    url = ""
    can_list = True

    def harvest(self, asking: Asking, limits: Limits | None = None, **options: Any) -> Harvested:
        """The root file as scanned by an asking."""
        raise NotImplementedError

    def attributes(self, asking: Asking, limits: Limits | None = None, **options: Any) -> Any:
        """What the asking returned; its error where it failed."""
        result = self.harvest(asking, limits, **options)
        if result.raised is not None:
            raise result.raised
        return result.attributes


class InMemory(Place):
    url = "memory://s/root.st"

    def harvest(self, asking: Asking, limits: Limits | None = None, *, listable: bool = True) -> Harvested:
        others = {name.removeprefix("s/"): data for name, data in FILES.items() if name.startswith("s/")}
        item, source, scanner = Input(url=self.url), Source(url=self.url), Store(asking)
        try:
            steps = scan_bytes(
                BODY, url=self.url, limits=limits, scanner=scanner, sidecars=others, listable=listable  # type: ignore[arg-type]
            )  # fmt: skip
        except PeriplusError as error:
            return Harvested(input=item, source=source, raised=error)
        return Harvested(input=item, source=source, attributes=steps[0].attributes)  # type: ignore[union-attr]


class OnDisk(Place):
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.url, self._patch = str(folder / "s" / "root.st"), patch
        for name, data in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)

    def harvest(self, asking: Asking, limits: Limits | None = None, **options: Any) -> Harvested:
        self._patch.setattr(scan, "sniff", lambda _: Store(asking))
        return harvest_local(Input(url=self.url), self.url, HeadSize(), limits or Limits(), **options)


class Remote(Place):
    def __init__(self, url: str, patch: pytest.MonkeyPatch, fetch: Fetch) -> None:
        self.url, self._patch, self.fetch = f"{url}/s/root.st", patch, fetch
        self.can_list = not url.startswith("http")

    def harvest(self, asking: Asking, limits: Limits | None = None, fetch: Fetch | None = None) -> Harvested:
        self._patch.setattr(scan, "sniff", lambda _: Store(asking))
        fetch = fetch or self.fetch
        return fetch.run(harvest_remote(Input(url=self.url), self.url, fetch, HeadSize(), limits or Limits()))


@pytest.fixture(params=["memory", "disk", "http", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    kind = request.param
    if kind == "memory":
        yield InMemory()
    elif kind == "disk":
        yield OnDisk(tmp_path, monkeypatch)
    elif kind == "http":
        server: RangeServer = request.getfixturevalue("server")
        server.files.update(FILES)
        yield Remote(server.url, monkeypatch, request.getfixturevalue("fetch"))
    else:
        s3: S3Server = request.getfixturevalue("s3")
        with Fetch(storage_options=s3.storage_options) as fetch:
            for name, data in FILES.items():
                fetch.run(fetch.write(f"{s3.url}/rounds/{name}", data))
            yield Remote(f"{s3.url}/rounds", monkeypatch, fetch)


def ranges(*places: tuple[int, int]) -> tuple[Need, ...]:
    return tuple(Need(*place) for place in places)


def test_a_round_is_answered_in_its_order(place: Place) -> None:
    end = len(BODY)
    needs = ranges((2 << 20, 10), (5, 3), (1 << 20, 7), (2 << 20, 10), ((2 << 20) - 5, 9), (end - 2, 100), (end + 9, 4))

    def ask(source: Source) -> Any:
        answers = yield needs
        assert isinstance(answers, tuple)
        again = yield list(needs)
        return {"parts": [bytes(each) for each in answers], "again": [bytes(each) for each in again]}

    found = place.attributes(ask)
    assert found["parts"] == found["again"] == [BODY[need.offset : need.offset + need.length] for need in needs]


def test_an_empty_round_is_answered_too(place: Place) -> None:
    def ask(source: Source) -> Any:
        return {"answers": (yield ())}

    assert place.attributes(ask)["answers"] == ()


def test_a_round_goes_into_files_that_were_found(place: Place) -> None:
    def ask(source: Source) -> Any:
        name, facts = yield FirstSidecar(("none", "a/part"))
        if place.can_list:
            yield FolderListing("b/")
        others = ["b/c/[x]*"] if place.can_list else []
        answers = yield (
            Need(2 << 20, 5),
            Need(5, 4, sidecar=name),
            *(Need(0, 99, sidecar=other) for other in others),
            Need(0, 4, sidecar=name, passing=True),
        )
        return {"size": facts.size, "parts": [bytes(each) for each in answers]}

    found = place.attributes(ask)
    assert found["size"] == 9
    listed = [b"deep"] if place.can_list else []
    assert found["parts"] == [BODY[2 << 20 : (2 << 20) + 5], b"of a", *listed, b"part"]


def test_a_listing_names_everything_below(place: Place) -> None:
    def ask(source: Source) -> Any:
        whole = yield FolderListing()
        flat = yield FolderListing(deep=False)
        below = yield FolderListing("b")
        return {
            "whole": {name: (facts.size, facts.url) for name, facts in whole.items()},
            "flat": {name: facts.size for name, facts in flat.items()},
            "below": list(below),
            "none": [(yield FolderListing("absent/")), (yield FolderListing("b.txt/")), (yield FolderListing("[ab]/"))],
            "sidecar": "a/part",
        }

    if not place.can_list:
        with pytest.raises(FormatError, match="no listing"):
            place.attributes(ask)
        return
    result = place.harvest(ask)
    assert result.raised is None
    found = result.attributes
    folder = place.url.rpartition("/")[0]
    assert list(found["whole"]) == INSIDE
    assert found["whole"] == {name: (len(FILES[f"s/{name}"]), f"{folder}/{name}") for name in INSIDE}
    assert found["flat"] == {"a/": None, "b.txt": 4, "b/": None, "root.st": len(BODY)}
    assert found["below"] == ["b/c/[x]*"]
    assert found["none"] == [{}, {}, {}]
    if not isinstance(place, InMemory):
        assert [each.url for each in result.sidecars] == [f"{folder}/a/part"]
        assert result.stored_in == (1,)


def test_a_scanner_may_do_without_a_listing(place: Place) -> None:
    def ask(source: Source) -> Any:
        try:
            names = list((yield FolderListing("a/")))
        except FormatError:
            names = ["without"]
        return {"names": names, "then": bytes((yield Need(5, 4)))}

    options = {"listable": False} if isinstance(place, InMemory) else {}
    found = place.attributes(ask, **options)
    without = isinstance(place, InMemory) or not place.can_list
    assert found["names"] == (["without"] if without else ["a/.hidden", "a/part"])
    assert found["then"] == BODY[5:9]


@pytest.mark.parametrize("name", ["../other", "/etc/passwd", "a/../../other", "a//part", "./a", "a\\b", "s3://b/x"])
def test_nothing_above_the_folder_is_reached(place: Place, name: str) -> None:
    def list_it(source: Source) -> Any:
        return {"names": list((yield FolderListing(name)))}

    def look(source: Source) -> Any:
        return {"found": (yield FirstSidecar((name,)))}

    def read(source: Source) -> Any:
        return {"bytes": (yield (Need(0, 4), Need(0, 4, sidecar=name)))}

    for ask in (list_it, look, read):
        with pytest.raises(DeniedError):
            place.attributes(ask)


def test_a_file_that_was_not_found_is_not_read(place: Place) -> None:
    def ask(source: Source) -> Any:
        yield (Need(0, 4), Need(0, 4, sidecar="b.txt.not"))

    with pytest.raises(MissingError):
        place.attributes(ask)


def test_listings_are_limited(place: Place) -> None:
    def ask(source: Source) -> Any:
        first = yield FolderListing("a/")
        second = yield FolderListing("b/")
        return {"count": len(first) + len(second)}

    if place.can_list:
        assert place.attributes(ask, Limits(listed=3))["count"] == 3
        with pytest.raises(LimitError):
            place.attributes(ask, Limits(listed=2))


def test_rounds_count_as_header(place: Place) -> None:
    def ask(source: Source) -> Any:
        answers = yield tuple(Need(k << 18, 30_000) for k in range(1, 5))
        return {"bytes": sum(map(len, answers))}

    assert place.attributes(ask, Limits(header_bytes=160_000))["bytes"] == 120_000
    if not isinstance(place, InMemory):  # its scanners count by themselves
        with pytest.raises(LimitError):
            place.attributes(ask, Limits(header_bytes=120_000))


def scattered(source: Source) -> Any:
    """As a scan of HDF5: object headers at many places, then what each of them points to."""
    heads = [Need(k << 16, 512) for k in range(1, 47)]
    yield Need(0, 100)
    yield heads
    yield [Need(need.offset + 512, 300) for need in heads]
    yield [Need(need.offset + 40_000, 2000) for need in heads]
    return {}


def test_a_round_of_scattered_ranges_costs_the_time_of_one(
    server: RangeServer, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"STORE" + bytes(100 << 20)
    server.files["s/root.st"] = data
    place = Remote(server.url, monkeypatch, fetch)

    def far(source: Source) -> Any:
        heads = [Need(k << 21, 512) for k in range(1, 47)]
        yield heads
        yield [Need(need.offset + 512, 300) for need in heads]
        yield [Need(need.offset + 500_000, 2000) for need in heads]
        return {}

    server.latency = 0.05
    place.attributes(far)
    assert len(server.log) == 1 + 46 + 46, "what follows the first was read ahead"
    assert server.most_waiting > 20
    assert sum(request.sent for request in server.log) < 700_000
    server.log.clear()
    place.attributes(scattered)
    assert len(server.log) <= 4, "neighbours are one request"


def test_an_error_in_a_round_ends_it(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files.update(FILES)

    def ask(source: Source) -> Any:
        name, _ = yield FirstSidecar(("a/part",), 4)
        server.faults["/s/a/part"] = [Fault(kind="status-500", times=-1)]
        yield (Need(2 << 20, 100), Need(4, 5, sidecar=name), Need(1 << 20, 100))

    with Fetch(retries=0) as fetch:
        result = Remote(server.url, monkeypatch, fetch).harvest(ask)
    assert result.error is not None
    assert result.error.startswith("fetch: ")


def test_a_listed_file_must_stay_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = OnDisk(tmp_path, monkeypatch)

    def ask(source: Source) -> Any:
        yield FolderListing("a/")
        (tmp_path / "s/a/part").write_bytes(b"another and longer")
        yield Need(0, 4, sidecar="a/part")

    assert (place.harvest(ask).error or "").startswith("stale: ")


def test_policy_holds_for_listings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = OnDisk(tmp_path, monkeypatch)
    check = Policy(prefixes=(place.url, f"{tmp_path}/s/a/")).check

    def ask(source: Source) -> Any:
        allowed = yield FolderListing("a/")
        try:
            yield FolderListing("b/")
        except DeniedError as error:
            return {"allowed": list(allowed), "denied": error.kind}

    assert place.attributes(ask, check=check) == {"allowed": ["a/.hidden", "a/part"], "denied": "denied"}
    os.symlink(tmp_path / "other", tmp_path / "s/a/link")

    def follow(source: Source) -> Any:
        yield FolderListing("a/")
        yield Need(0, 4, sidecar="a/link")

    assert (place.harvest(follow, check=check).error or "").startswith("denied: ")


def test_what_may_not_be_listed_is_not_taken_for_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from periplus.fetch.local import files as local

    place = OnDisk(tmp_path, monkeypatch)
    real = os.scandir

    def denied(path: str) -> Any:
        if path.endswith("/b"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(local.os, "scandir", denied)

    def ask(source: Source) -> Any:
        return {"names": list((yield FolderListing()))}

    with pytest.raises(DeniedError):
        place.attributes(ask)


def test_without_sidecars_no_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(source: Source) -> Any:
        return {"names": list((yield FolderListing()))}

    with pytest.raises(FormatError, match="sidecars=False"):
        OnDisk(tmp_path, monkeypatch).attributes(ask, look_for_sidecars=False)

"""A source that changes after it was indexed: StaleError or MissingError, never its new pixels, by whatever way."""

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import periplus
from periplus.fetch import Fetch
from periplus.testing.formats import tiff as tiffs
from periplus.testing.servers.http import Fault

OLD = tiffs.picture("old", "u2", (2, 120, 150))
NEW = tiffs.picture("new", "u2", (2, 120, 150))
CHANGES = ("same size", "smaller", "larger", "deleted")


def content(change: str) -> bytes | None:
    """What takes the place of the scene; all of it sound files of other pixels."""
    if change == "deleted":
        return None
    if change == "smaller":
        return tiffs.written(NEW, compression="zstd")
    return tiffs.written(NEW) + bytes(100 if change == "larger" else 0)


@dataclass
class Place:
    """Somewhere a scene lies, and how it is replaced there."""

    url: str
    put: Callable[[bytes | None], None]
    options: dict[str, Any] | None = None


def local(folder: Path) -> Place:
    path = folder / "scene.tif"

    def put(data: bytes | None) -> None:
        if data is None:
            path.unlink()
        else:
            fresh = path.with_name("fresh")
            fresh.write_bytes(data)
            os.replace(fresh, path)

    return Place(str(path), put)


def in_place(folder: Path) -> Place:
    """As a careless program does it: the same file, opened and overwritten."""
    path = folder / "scene.tif"
    return Place(str(path), lambda data: path.unlink() if data is None else void(path.write_bytes(data)))


def void(_: object) -> None:
    """Nothing."""


def web(server: Any) -> Place:
    def put(data: bytes | None) -> None:
        if data is None:
            del server.files["scene.tif"]
        else:
            server.files["scene.tif"] = data

    return Place(f"{server.url}/scene.tif", put)


def bucket(s3: Any, name: str) -> Place:
    url = f"{s3.url}/{name}/scene.tif"

    def put(data: bytes | None) -> None:
        with Fetch(storage_options=s3.storage_options) as fetch:
            fetch.run(fetch.delete(url) if data is None else fetch.write(url, data))

    return Place(url, put, s3.storage_options)


@pytest.fixture(params=["local", "in place", "http", "http without tags", pytest.param("s3", marks=pytest.mark.s3)])
def place(request, tmp_path) -> Place:
    if request.param == "local":
        found = local(tmp_path)
    elif request.param == "in place":
        found = in_place(tmp_path)
    elif request.param == "s3":
        found = bucket(request.getfixturevalue("s3"), tmp_path.name)
    else:
        server = request.getfixturevalue("server")
        found = web(server)
        if request.param == "http without tags":  # then size and date must do
            put, server.faults["*"] = found.put, [Fault(kind="no-tag", times=-1)]

            def dated(data: bytes | None) -> None:
                put(data)
                server.modified["scene.tif"] = server.modified.get("scene.tif", 1.6e9) + 60

            found.put = dated
    found.put(tiffs.written(OLD))
    return found


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changed_is_never_read_as_the_old_one(place, change, tmp_path):
    index = periplus.index(place.url, storage_options=place.options)
    rest = tmp_path / "index.parquet"
    periplus.index(place.url, to=rest, storage_options=place.options).close()
    opened = periplus.open(rest, allow=[place.url], storage_options=place.options)
    dataset = xr.open_dataset(rest, engine="periplus", allow=[place.url], storage_options=place.options)
    tree = xr.open_dataset(index, engine="periplus", chunks={})
    with index, opened, dataset, tree:
        for values in (index["0/data"][...], opened["0/data"][...]):
            np.testing.assert_array_equal(values, OLD)
        place.put(content(change))
        expected = periplus.MissingError if change == "deleted" else periplus.StaleError
        for use in (
            lambda: index["0/data"][...],
            lambda: index["0/data"][1, 5, 7],
            lambda: opened["0/data"][..., :20, :20],
            lambda: opened.read(max_size=50),
            lambda: dataset.load(),
            lambda: dataset["data"][0, 3:5].values,
            lambda: tree.compute(),
        ):
            with pytest.raises(expected) as caught:
                use()
            assert caught.value.url == place.url
        if change != "deleted":
            with periplus.index(place.url, storage_options=place.options) as again:
                np.testing.assert_array_equal(again["0/data"][...], NEW)


def flat(value: int) -> bytes:
    """A scene of one value, so that a mixture of two shows."""
    return tiffs.written(np.full((1, 256, 256), value, "u2"))


@pytest.mark.parametrize("kind", ["local", "in place", "http"])
def test_readers_see_whole_old_scenes_or_errors_while_one_is_replaced(kind, tmp_path, server):
    found = {"local": lambda: local(tmp_path), "in place": lambda: in_place(tmp_path), "http": lambda: web(server)}[
        kind
    ]()
    found.put(flat(0))
    stop, dice, until = threading.Event(), random.Random(3), time.monotonic() + 100

    def replace() -> None:
        value = 0
        while not stop.is_set():
            value = (value + 1) % 60_000
            if value % 7 == 0:
                found.put(None)
            found.put(flat(value))
            time.sleep(dice.choice((0.001, 0.005, 0.1)))  # some reads are overtaken, some are not

    outcomes: dict[str, int] = {}
    wrong: list[str] = []

    def read(number: int) -> None:
        while time.monotonic() < until and (outcomes.get("right", 0) < 200 or outcomes.get("stale", 0) < 10):
            try:
                with periplus.index(found.url) as index:
                    first = index["0/data"][0, number, number]
                    for _ in range(20):
                        values = index["0/data"][...]
                        if not (values == first).all():
                            wrong.append(f"{first} and {np.unique(values)}")
                        count("right")
            except periplus.PeriplusError as error:
                count(error.kind)

    def count(what: str) -> None:
        outcomes[what] = outcomes.get(what, 0) + 1

    writer = threading.Thread(target=replace)
    readers = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    writer.join()
    assert not wrong
    assert outcomes["right"] > 0
    assert outcomes["stale"] > 0
    # A file that is being overwritten in place is, for a moment, no TIFF or one without its pixels.
    assert set(outcomes) <= {"right", "stale", "missing"} | ({"format", "decode"} if kind == "in place" else set())

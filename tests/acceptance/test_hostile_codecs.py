"""Indexes of imagery with wrong codec settings: sizes, headers and types that do not fit the bytes are refused."""

import base64
import copy
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import periplus
from periplus.errors import PeriplusError
from periplus.limits import MIB, Limits
from periplus.table.document.document import KEY
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import pictures
from periplus.testing.formats import tiff as tiffs
from periplus.testing.mutants import byte_mutants, json_mutants
from periplus.testing.tamper import tamper

LIMITS = Limits(chunk_bytes=64 * MIB, read_bytes=64 * MIB)
WRONG_VALUES = (
    *(0, 1, 2, 7, 9, 33, 255, 4096, 65_535, 1 << 20, (1 << 31) - 1, 1 << 32, 1 << 62, -1, -8),
    *(None, "x", 1.5, True, []),
)
COUNT = 24


def restarted() -> bytes:
    """A JPEG with restart markers, which is indexed in bands."""
    values = np.ascontiguousarray(np.moveaxis(tiffs.picture("bands", "u1", (3, 256, 256)), 0, -1))
    target = io.BytesIO()
    Image.fromarray(values).save(target, "JPEG", restart_marker_rows=1)
    return target.getvalue()


def blocks() -> bytes:
    values = nitfs.values_of("u8", 1)
    streams = [imagecodecs.jpeg8_encode(values[0])] * 2
    return nitfs.nitf(
        nitfs.ImageSegment(values=np.tile(values, 2), coding="M3", streams=streams, block=(72, 90), masked=True, pad=1)
    )


FILES: dict[str, Callable[[], bytes]] = {
    "packed.ntf": lambda: nitfs.nitf(nitfs.case("masked-u12-S-tiles-3")),
    "complex.ntf": lambda: nitfs.nitf(nitfs.case("plain-c64-R-single-3")),
    "blocks.ntf": blocks,
    "bands.jpg": restarted,
    "gray.jpg": pictures.jpegs()["gray"],
    "tiled.j2k": lambda: j2ks.made(j2ks.picture(3, "u1", 96, 96), blockxsize=64, blockysize=64),
    "deep.png": lambda: pictures.png(tiffs.picture("deep", "u2", (3, 40, 50)), bits=16, colour=2),
    "cell.dt0": lambda: dteds.cell(dteds.heights("lies", 21, 13)),
}


def settings(value: Any) -> Iterator[dict[str, Any]]:
    """Every codec's configuration inside a document."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key == "configuration" and isinstance(inner, dict) and inner:
            yield inner
        yield from settings(inner)


def with_wrong_settings(document: Any, rng: random.Random) -> Any:
    """A copy of a document with one or two wrong settings of its codecs."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 2))):
        one = rng.choice(list(settings(document)))
        key = rng.choice(sorted(one))
        if isinstance(one[key], str) and len(one[key]) > 40 and rng.random() < 0.7:
            raw = base64.b64decode(one[key].removeprefix("base64:"))
            one[key] = base64.b64encode(next(byte_mutants(raw, seed=rng.getrandbits(30), count=1))).decode()
        else:
            one[key] = rng.choice(WRONG_VALUES)
    return document


def attempt(path: Path) -> set[str]:
    """The kinds of errors that opening and reading an index give, or `read`."""
    try:
        index = periplus.open(path, limits=LIMITS)
    except PeriplusError as error:
        return {error.kind}
    found = set()
    with index:
        for name in index:
            try:
                assert index[name][...].shape == index[name].shape
                found.add("read")
            except PeriplusError as error:
                found.add(error.kind)
    return found


@pytest.mark.parametrize("name", FILES)
def test_wrong_settings_are_refused(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_bytes(FILES[name]())
    path = tmp_path / "index.parquet"
    periplus.index(tmp_path / name, to=path).close()
    assert attempt(path) == {"read"}
    document = json.loads(pq.read_metadata(path).metadata[KEY])
    rng = random.Random(name)
    wrong = [with_wrong_settings(document, rng) for _ in range(COUNT)]
    kinds = set[str]()
    for changed in [*wrong, *json_mutants(document, seed=len(name), count=COUNT // 2)]:
        tamper(path, document=lambda _, changed=changed: changed)
        kinds |= attempt(path)
    assert "format" in kinds
    assert "read" in kinds or name == "bands.jpg"  # every setting of its bands is checked
    assert kinds <= {"read", "format", "limit", "decode", "missing", "denied", "stale"}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", [name for name in FILES if name != "deep.png"])
def test_wrong_settings_in_kerchunk_references_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name]())
    path = tmp_path / "refs.json"
    with periplus.index(tmp_path / name) as index:
        index.write(path).close()
    assert attempt(path) == {"read"}
    references = json.loads(path.read_text())
    keys = sorted(key for key in references["refs"] if key.endswith(".zarray"))
    rng = random.Random(name)
    kinds = set[str]()
    for number in range(COUNT):
        changed = copy.deepcopy(references)
        key = rng.choice(keys)
        array = json.loads(changed["refs"][key])
        codec = (array.get("filters") or [None])[0] or array["compressor"] or array
        if number % 3:
            codec[rng.choice(sorted(set(codec) - {"id"}) or ["more"])] = rng.choice(WRONG_VALUES)
        else:
            array = next(iter(json_mutants(array, seed=number, count=1)))
        changed["refs"][key] = json.dumps(array)
        path.write_text(json.dumps(changed))
        kinds |= attempt(path)
    assert kinds >= {"read", "format"}
    assert kinds <= {"read", "format", "limit", "decode", "missing", "denied", "stale"}

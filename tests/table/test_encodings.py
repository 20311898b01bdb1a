"""Facts of stored chunks in documents: written and read back, converted from codecs of old versions, refused."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Encoding, Region
from periplus.model.codecnames import TIFF_TILE
from periplus.table.collection.build import likeness
from periplus.table.document.document import document_for, dump, load

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
ZLIB = {"name": "numcodecs.zlib", "configuration": {"level": 6}}
TILE = {"name": TIFF_TILE, "configuration": {"compression": 5, "tile_height": 4, "tile_width": 8}}
ARRAY = Array(name="a", dims=("bands", "y", "x"), shape=(1, 10, 20), chunks=(1, 4, 8), dtype=np.dtype("i2"))
REGION = Region(begin=(0, 1, 0), at=(0, 0, 2), size=(1, 3, 6))


def document(encodings, version=3):
    said = json.loads(dump(document_for(Catalog(arrays={"a": ARRAY}))))
    said["arrays"]["a"]["encodings"] = encodings
    return said | {"version": version}


def loaded(encodings, version=3):
    return load(document(encodings, version), limits=Limits()).catalog.arrays["a"].encodings


def test_codecs_alone_are_a_list_and_facts_make_an_object():
    facts = Encoding((BYTES,), (1, 6, 8), ("y", "x"), replace(REGION, transparent=math.nan, layer=1))
    array = replace(ARRAY, encodings=(Encoding((BYTES, ZLIB)), facts))
    said = json.loads(dump(document_for(Catalog(arrays={"a": array}))))["arrays"]["a"]["encodings"]
    region = {"begin": [0, 1, 0], "at": [0, 0, 2], "size": [1, 3, 6], "transparent": "NaN", "layer": 1}
    assert said == [[BYTES, ZLIB], {"codecs": [BYTES], "extent": [1, 6, 8], "clipped": ["y", "x"], "region": region}]
    assert loaded(said) == array.encodings


@given(st.data())
def test_every_fact_comes_back(data):
    region = None
    extent = tuple(n + data.draw(st.integers(0, 3)) for n in ARRAY.chunks)
    if data.draw(st.booleans()):
        size = tuple(data.draw(st.integers(1, n)) for n in ARRAY.chunks)
        begin = tuple(data.draw(st.integers(0, m - n)) for m, n in zip(extent, size, strict=True))
        at = tuple(data.draw(st.integers(0, m - n)) for m, n in zip(ARRAY.chunks, size, strict=True))
        value = data.draw(st.none() | st.integers() | st.floats(allow_nan=False) | st.just(np.nan))
        region = Region(begin=begin, at=at, size=size, transparent=value, layer=data.draw(st.integers(0, 9)))
    clipped = tuple(data.draw(st.lists(st.sampled_from(ARRAY.dims), unique=True)))
    made = Encoding((BYTES,), extent, clipped, region)
    array = replace(ARRAY, encodings=(made,))
    (back,) = load(dump(document_for(Catalog(arrays={"a": array}))), limits=Limits()).catalog.arrays["a"].encodings
    assert back == made
    assert hash(back) == hash(made)
    assert likeness(replace(ARRAY, encodings=(back,))) == likeness(array)


PIECE = {"shape": [1, 6, 8], "from": [0, 1, 0], "at": [0, 0, 2], "size": [1, 3, 6]}
OLD = {
    "crop": (
        [{"name": "periplus.crop", "configuration": {"shape": [1, 6, 8]}}, BYTES],
        Encoding((BYTES,), extent=(1, 6, 8)),
    ),
    "piece": (
        [{"name": "periplus.piece", "configuration": {**PIECE, "clear": {"$number": "NaN"}, "layer": 1}}, BYTES],
        Encoding((BYTES,), extent=(1, 6, 8), region=replace(REGION, transparent=math.nan, layer=1)),
    ),
    "last rows": (
        [{**TILE, "configuration": {**TILE["configuration"], "last_rows": 2}}],
        Encoding((TILE,), clipped=("y",)),
    ),
    "crop, unpacking and last rows": (
        [
            {"name": "periplus.crop", "configuration": {"shape": [1, 6, 8]}},
            {"name": "periplus.unpack", "configuration": {"dtype": "<i2"}},
            {**TILE, "configuration": {**TILE["configuration"], "last_rows": 2}},
        ],
        Encoding(({"name": "periplus.unpack", "configuration": {"dtype": "<i2"}}, TILE), (1, 6, 8), ("y",)),
    ),
    "a pipeline as one codec": (
        [
            {
                "name": "periplus.pipeline",
                "configuration": {"codecs": [BYTES, ZLIB], "shape": [1, 4, 8], "dtype": "<i2", "last_rows": 2},
            }
        ],
        Encoding((BYTES, ZLIB), clipped=("y",)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("case", OLD)
def test_codecs_of_older_versions_become_facts(case, version):
    codecs, expected = OLD[case]
    assert loaded([codecs], version) == (expected,)


def test_a_pipeline_of_other_chunks_stays_what_it_is_and_is_refused_by_decoders():
    codec = {"name": "periplus.pipeline", "configuration": {"codecs": [BYTES], "shape": [4, 4], "last_rows": 2}}
    (found,) = loaded([[codec]])
    assert found.codecs[0]["configuration"]["shape"] == [4, 4]


SOUND = {"begin": [0, 0, 0], "at": [0, 0, 0], "size": [1, 4, 8]}
HOSTILE = {
    "no codecs": {"extent": [1, 4, 8]},
    "codecs as text": {"codecs": "bytes"},
    "an unknown field": {"codecs": [BYTES], "shape": [1, 4, 8]},
    "an extent of other rank": {"codecs": [BYTES], "extent": [4, 8]},
    "an extent that holds no chunk": {"codecs": [BYTES], "extent": [1, 4, 7]},
    "an extent of zero": {"codecs": [BYTES], "extent": [0, 4, 8]},
    "an extent of floats": {"codecs": [BYTES], "extent": [1.0, 4, 8]},
    "an extent over 63 bits": {"codecs": [BYTES], "extent": [1, 4, 2**63]},
    "clipped as text": {"codecs": [BYTES], "clipped": "y"},
    "clipped along nothing": {"codecs": [BYTES], "clipped": ["time"]},
    "clipped along a number": {"codecs": [BYTES], "clipped": [1]},
    "a region without an extent": {"codecs": [BYTES], "region": SOUND},
    "a region as a list": {"codecs": [BYTES], "extent": [1, 4, 8], "region": [0, 0, 0]},
    "a region beyond the stored chunk": {"codecs": [BYTES], "extent": [1, 3, 8], "region": SOUND},
    "a region beyond the chunk": {"codecs": [BYTES], "extent": [1, 9, 9], "region": {**SOUND, "at": [0, 1, 0]}},
    "a region at minus one": {"codecs": [BYTES], "extent": [1, 4, 8], "region": {**SOUND, "at": [0, -1, 0]}},
    "a region of nothing": {"codecs": [BYTES], "extent": [1, 4, 8], "region": {**SOUND, "size": [1, 0, 8]}},
    "a region of truth": {"codecs": [BYTES], "extent": [1, 4, 8], "region": {**SOUND, "size": [True, 1, 1]}},
    "a region with a colour": {"codecs": [BYTES], "extent": [1, 4, 8], "region": {**SOUND, "colour": 1}},
    "transparent text": {"codecs": [BYTES], "extent": [1, 4, 8], "region": {**SOUND, "transparent": "7"}},
    "a layer of text": {"codecs": [BYTES], "extent": [1, 4, 8], "region": {**SOUND, "layer": "1"}},
    "two extents": {"codecs": OLD["crop"][0], "extent": [1, 6, 8]},
    "a crop of nothing": [{"name": "periplus.crop"}, BYTES],
    "a piece of nothing": [{"name": "periplus.piece"}, BYTES],
    "a piece of a colour": [{"name": "periplus.piece", "configuration": {**PIECE, "colour": 1}}, BYTES],
    "last rows of text": [{"name": TIFF_TILE, "configuration": {"last_rows": "2"}}],
    "a transpose without an order": [{"name": "transpose"}, BYTES],
    **{
        f"a transpose of {order}": [{"name": "transpose", "configuration": {"order": order}}, BYTES]
        for order in ([0, 1], [0, 1, 2, 3], [0, 1, 1], [1, 2, 3], [1, "2", 0], [True, 2, 0], [1.0, 2, 0], "120", 7)
    },
}


@pytest.mark.parametrize("case", HOSTILE)
def test_facts_that_make_no_sense_are_refused(case):
    with pytest.raises(FormatError, match="array 'a'"):
        loaded([HOSTILE[case]])


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.just(2**64) | st.sampled_from(["y", "NaN", "bytes", ""]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["codecs", "extent", "clipped", "region", "begin", "at", "size", "name", "configuration",
                         "shape", "last_rows", "layer", "transparent"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(st.one_of(
    JUNK,
    st.builds(lambda more: {"codecs": [BYTES], "extent": [1, 6, 8], "region": SOUND, **more}, st.dictionaries(
        st.sampled_from(["codecs", "extent", "clipped", "region"]), JUNK, max_size=2)),
    st.builds(lambda name, settings: [{"name": name, "configuration": settings}, BYTES],
              st.sampled_from(["periplus.crop", "periplus.piece", "periplus.pipeline", TIFF_TILE]),
              st.dictionaries(st.sampled_from(["codecs", "shape", "from", "at", "size", "last_rows"]), JUNK)),
), max_size=2))  # fmt: skip
def test_anything_gives_encodings_or_our_errors(encodings):
    try:
        found = loaded(encodings)
    except PeriplusError:
        return
    assert all(isinstance(each, Encoding) for each in found)

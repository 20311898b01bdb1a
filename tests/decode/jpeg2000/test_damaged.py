"""Hostile JPEG 2000 tiles: damage gives our errors and nothing else; bombs never reach a native decoder."""

import base64
import struct

import numpy as np
import pytest

from periplus.decode import prepare
from periplus.decode.jpeg2000 import codec as jpeg2000
from periplus.decode.pipeline import Decoder
from periplus.errors import DecodeError, FormatError, LimitError
from periplus.limits import MIB, Limits
from periplus.parse.jpeg2000.segments import EPH, PLM, PLT, PPM, PPT, SOP
from periplus.testing.formats import codestreams
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.mutants import byte_mutants

LIMITS = Limits(chunk_bytes=64 * MIB)
HOW = {
    "position first": {"progression": 3},
    "layers first": {"progression": 0},
    "headers in the tile": {"progression": 2, "heads": PPT, "cuts": 2},
    "headers in front": {"progression": 4, "heads": PPM, "markers": EPH},
    "changes": {"changes": [(0, 0, 1, 4, 3, 0), (0, 0, 3, 4, 3, 3)], "markers": SOP | EPH},
    "listed": {"progression": 3, "packets": PLT, "cuts": 2},
    "listed in front": {"progression": 4, "packets": PLM},
}


def small(**options: object) -> bytes:
    plain = j2ks.made(j2ks.picture(3, "u1", 64, 64), QUALITY="10,30,60", PRECINCTS="{32,32},{16,16}")
    return codestreams.reordered(plain, **options)


def decoder(header: bytes, level: int, shape: tuple[int, int, int], dtype: str = "u1") -> Decoder:
    settings = {"main_header": base64.b64encode(header).decode("ascii"), "resolution_level": level}
    codec = {"name": jpeg2000.NAME, "configuration": settings}
    return prepare((codec,), chunks=shape, dtype=np.dtype(dtype), limits=LIMITS)


@pytest.mark.parametrize("name", HOW)
def test_damaged_tiles_give_decode_errors_and_nothing_else(name: str) -> None:
    data = small(**HOW[name])
    settings = j2ks.found(data)[0].array.encodings[0].codecs[0]["configuration"]
    run = decoder(base64.b64decode(settings["main_header"]), 1, (3, 32, 32))
    _, parts = j2ks.split(data)
    raw = b"".join(part.data for part in parts)
    assert run(raw, valid=(3, 32, 32)).shape == (3, 32, 32)
    refused = 0
    for mutant in byte_mutants(raw, seed=len(name), count=60):
        try:
            assert run(mutant, valid=(3, 32, 32)).shape == (3, 32, 32)
        except DecodeError:
            refused += 1
    assert refused > 12


@pytest.mark.parametrize("name", HOW)
def test_damaged_files_give_our_errors_and_ranges_inside_them(name: str) -> None:
    data = small(**HOW[name])
    refused = 0
    for mutant in byte_mutants(data, seed=7, count=120):
        try:
            items = j2ks.found(mutant)
        except (FormatError, LimitError):
            refused += 1
            continue
        for item in items:
            refs = item.refs
            stored = [n for n in range(len(refs)) if refs.inline_bytes(n) is None]
            assert int((refs.offset + refs.length)[stored].max()) <= len(mutant)
            assert refs.length.min() > 0
    assert refused > 5


@pytest.mark.parametrize("name", ["position first", "changes", "headers in front"])
def test_damaged_main_headers(name: str) -> None:
    data = small(**HOW[name])
    header = base64.b64decode(j2ks.found(data)[0].array.encodings[0].codecs[0]["configuration"]["main_header"])
    raw = b"".join(part.data for part in j2ks.split(data)[1])
    refused = 0
    for mutant in byte_mutants(header, seed=11, count=150):
        try:
            decoder(mutant, 1, (3, 32, 32))(raw, valid=(3, 32, 32))
        except (FormatError, DecodeError):
            refused += 1
    assert refused > 50


def test_a_main_header_that_ends_early_is_refused() -> None:
    header, _ = j2ks.split(small(**HOW["changes"]))
    whole = header.index(b"\xff\x5f")  # what comes last, the changes of order, a header may do without
    for end in set(range(len(header))) - {whole}:
        with pytest.raises(FormatError):
            decoder(header[:end], 1, (3, 32, 32))


@pytest.mark.parametrize(
    ("precinct", "block"), [(0x11, (0, 0)), (0x22, (4, 4)), (0x55, (4, 4)), (0xFF, (0, 0)), (0xFF, (0, 1))]
)
def test_giants_of_tiny_pieces_never_reach_the_native_decoder(
    precinct: int, block: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(j2ks.made(j2ks.picture(1, "u1", 64, 64), PRECINCTS="{32,32}", RESOLUTIONS=2))
    struct.pack_into(">8I", data, 8, 8_000, 8_000, 0, 0, 8_000, 8_000, 0, 0)
    style = data.index(b"\xff\x52")
    data[style + 10 : style + 12] = bytes(block)
    data[style + 14 : style + 16] = bytes([precinct, precinct])

    def called(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(jpeg2000, "native", lambda _: called)
    header, parts = j2ks.split(bytes(data))
    for level in (0, 1):
        shape = (1, 8_000 >> level, 8_000 >> level)
        run = decoder(header, level, shape)
        with pytest.raises(DecodeError, match=r"packets|code-blocks"):
            run(parts[0].data, valid=shape)


@pytest.mark.parametrize("side", [70_000, 2**31 - 1])
def test_giants_are_refused_when_a_decoder_is_prepared_or_given_their_bytes(side: int) -> None:
    header, parts = j2ks.split(j2ks.giant(side))
    with pytest.raises(LimitError):
        decoder(header, 0, (1, side, side))
    with pytest.raises(DecodeError, match="its chunk 64 x 64"):
        decoder(header, 0, (1, 64, 64))(parts[0].data, valid=(1, 64, 64))


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("progression", [1, 3])
def test_numbers_of_packets_that_do_not_ascend_are_damage(level: int, progression: int) -> None:
    data = small(progression=progression, markers=SOP)
    settings = j2ks.found(data)[0].array.encodings[0].codecs[0]["configuration"]
    shape = (3, 64 >> level, 64 >> level)
    run = decoder(base64.b64decode(settings["main_header"]), level, shape)
    raw = b"".join(part.data for part in j2ks.split(data)[1])
    assert run(raw, valid=shape).shape == shape
    first, second = (raw.index(b"\xff\x91\0\4" + bytes([0, number])) for number in (1, 2))
    swapped = bytearray(raw)
    swapped[first + 5], swapped[second + 5] = 2, 1
    with pytest.raises(DecodeError, match="SOP markers"):
        run(bytes(swapped), valid=shape)
    lost = raw[: first + 5] + b"\3" + raw[first + 6 :]
    with pytest.raises(DecodeError, match="SOP markers"):
        run(lost, valid=shape)


@pytest.mark.parametrize("progression", [0, 3])
def test_a_declared_end_of_a_packet_header_must_be_there(progression: int) -> None:
    data = small(progression=progression, markers=EPH)
    settings = j2ks.found(data)[0].array.encodings[0].codecs[0]["configuration"]
    run = decoder(base64.b64decode(settings["main_header"]), 1, (3, 32, 32))
    raw = b"".join(part.data for part in j2ks.split(data)[1])
    assert run(raw, valid=(3, 32, 32)).shape == (3, 32, 32)
    with pytest.raises(DecodeError, match="EPH"):
        run(raw.replace(b"\xff\x92", b"\xff\x12", 1), valid=(3, 32, 32))

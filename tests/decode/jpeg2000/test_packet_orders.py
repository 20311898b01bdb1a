"""Codestreams put together in rare ways: other decoders see the same pixels, at every level, as our reader does."""

import numpy as np
import pytest

from periplus.decode import prepare
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.parse.jpeg2000.segments import EPH, PLM, PLT, PPM, PPT, SOP
from periplus.testing.formats import codestreams
from periplus.testing.formats import jpeg2000 as j2ks

LIMITS = Limits()
SIZE = {"blockxsize": 64, "blockysize": 64}


def base(layers: int = 1, **options: object) -> bytes:
    quality = "100" if layers == 1 else "10,40,100"
    return j2ks.made(j2ks.picture(3, "u1", 96, 128), QUALITY=quality, **SIZE, **options)


def check(data: bytes, levels: int, deepest: int = 3, *, exact: bool = True) -> list[int]:
    """Every level as Pillow sees it, from its own bytes and from whole tiles; how many bytes each takes."""
    items = j2ks.found(data)
    assert len(items) == levels
    for level in range(deepest):
        expected = j2ks.pillow(data, level)
        assert j2ks.alike(j2ks.whole(data, level), expected, exact=exact)
        if level < levels:
            assert j2ks.alike(j2ks.read(data, items[level]), expected, exact=exact)
    return [int(item.refs.length.sum()) for item in items]


@pytest.mark.parametrize(
    ("layers", "packets", "markers"),
    [
        (1, None, SOP | EPH),
        (1, PLT, 0),
        (1, PLM, SOP | EPH),
        (3, None, 0),
        (3, PLT, SOP | EPH),
        (3, PLM, 0),
    ],
)
def test_reordered_packets(layers: int, packets: int | None, markers: int) -> None:
    data = base(layers, PRECINCTS="{32,32},{16,16}")
    for progression in range(5):
        slow = progression > 2 or (progression == 0 and layers > 1)
        stream = codestreams.reordered(
            data, progression=progression, packets=packets, markers=markers, cuts=1 + progression
        )
        sizes = check(stream, 1 if slow and packets is None else 3)
        if packets is not None:
            assert sizes[2] < sizes[0] / 4


CHANGES = {
    "resolutions first": lambda layers: [(0, 0, layers, 2, 3, 1), (2, 0, layers, 4, 3, 4)],
    "a layer first": lambda layers: [(0, 0, 1, 4, 3, 0), (0, 0, layers, 3, 3, 3), (0, 0, layers, 4, 3, 2)],
    "a component first": lambda layers: [(0, 0, layers, 4, 1, 2), (0, 1, layers, 4, 3, 3)],
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("layers", [1, 3])
def test_changes_of_order(name: str, layers: int) -> None:
    data = base(layers)
    changes = CHANGES[name](layers)
    check(codestreams.reordered(data, changes=changes, cuts=2), 1)
    for packets in (PLT, PLM):
        sizes = check(codestreams.reordered(data, changes=changes, packets=packets, cuts=2), 3)
        assert sizes[2] < sizes[0] / 4


@pytest.mark.parametrize("heads", [PPM, PPT])
@pytest.mark.parametrize("layers", [1, 3])
def test_packet_headers_elsewhere(heads: int, layers: int) -> None:
    for markers in (0, SOP | EPH):
        check(codestreams.reordered(base(layers), progression=3, heads=heads, cuts=2, markers=markers), 1)


@pytest.mark.parametrize("packets", [None, PLT])
def test_tiles_with_an_order_of_their_own(packets: int | None) -> None:
    data = codestreams.reordered(base(3), progression=2, orders={1: 3, 2: 4}, packets=packets)
    sizes = check(data, 3)
    # Those tiles are read whole, which is always right; the others only as far as needed.
    assert (sizes[2] < sizes[0]) == (packets is not None)


def test_an_order_of_their_own_in_all_but_resolutions_leaves_no_level() -> None:
    check(codestreams.reordered(base(3), progression=3, orders={1: 2}, packets=PLT), 1)


@pytest.mark.parametrize("order", ["LRCP", "RPCL", "PCRL"])
@pytest.mark.parametrize(("usual", "own"), [(4, 3), (3, 5), (3, 2)])
def test_tiles_with_a_wavelet_and_levels_of_their_own(order: str, usual: int, own: int) -> None:
    values = j2ks.picture(3, "u1", 128, 192)
    host = j2ks.made(values, PROGRESSION=order, RESOLUTIONS=usual, **SIZE)
    guest = j2ks.made(values, PROGRESSION="RLCP", RESOLUTIONS=own, REVERSIBLE="NO", QUALITY="40", **SIZE)
    data = codestreams.with_tile_of(host, guest, 4)
    deepest = min(usual, own, 3)
    check(data, 1 if order == "PCRL" else deepest, deepest, exact=False)
    sizes = check(codestreams.reordered(data, packets=PLT), 1 if order == "PCRL" else deepest, deepest, exact=False)
    assert order == "PCRL" or sizes[-1] < sizes[0] / 2


@pytest.mark.parametrize("order", ["LRCP", "RLCP", "RPCL", "PCRL", "CPRL"])
@pytest.mark.parametrize(("first", "second"), [(4, 3), (3, 4), (4, 4)])
def test_components_with_a_coding_of_their_own(order: str, first: int, second: int) -> None:
    values = j2ks.picture(2, "u1", 96, 128)
    one = j2ks.made(values[:1], PROGRESSION=order, RESOLUTIONS=first, **SIZE)
    other = j2ks.made(values[1:], PROGRESSION=order, RESOLUTIONS=second, REVERSIBLE="NO", QUALITY="40",
                      PRECINCTS="{32,32},{16,16}", **SIZE)  # fmt: skip
    data = codestreams.joined_components(one, other)
    expected = [
        np.concatenate([j2ks.pillow(one, level), j2ks.pillow(other, level)]) for level in range(min(first, second))
    ]
    listed = codestreams.reordered(data, packets=PLT)
    assert len(j2ks.found(listed)) == 3
    assert len(j2ks.found(data)) == (3 if first == second and order in ("LRCP", "RLCP", "RPCL") else 1)
    for stream in (data, listed):
        for item in j2ks.found(stream):
            assert j2ks.alike(j2ks.read(stream, item), expected[item.array.level], exact=False)
        for level, values in enumerate(expected):
            assert j2ks.alike(j2ks.whole(stream, level), values, exact=False)


@pytest.mark.parametrize("progression", [2, 3])
def test_lists_that_are_wrong_are_not_believed(progression: int) -> None:
    data = bytearray(codestreams.reordered(base(), progression=progression, packets=PLT))
    at = data.rindex(b"\xff\x58") + 6
    data[at] ^= 1
    sizes = [int(item.refs.length.sum()) for item in j2ks.found(bytes(data))]
    assert sizes == [sizes[0]] * (3 if progression == 2 else 1)
    data = bytearray(codestreams.reordered(base(), progression=3, packets=PLM))
    at = data.index(b"\xff\x57") + 5
    data[at] += 1
    assert len(j2ks.found(bytes(data))) == 1


def test_whole_tiles_that_lack_packets_are_refused_at_every_level() -> None:
    data = codestreams.reordered(base(3), progression=3)
    array = j2ks.found(data)[0].array
    _, parts = j2ks.split(data)
    for level in (1, 2):
        codec = array.encodings[0].codecs[0]
        codec = {"name": codec["name"], "configuration": {**codec["configuration"], "resolution_level": level}}
        shape = (3, 64 >> level, 64 >> level)
        decoder = prepare((codec,), chunks=shape, dtype=array.dtype, limits=LIMITS)
        expected = j2ks.whole(data, level)[:, : shape[1], : shape[2]]
        assert np.array_equal(decoder(parts[0].data, valid=shape), expected)
        for end in (len(parts[0].data) // 2, 20, 14):
            with pytest.raises(DecodeError):
                decoder(parts[0].data[:end], valid=shape)
    deep = {"name": codec["name"], "configuration": {**codec["configuration"], "resolution_level": 4}}
    with pytest.raises(FormatError, match="3 lower resolutions, not 4"):
        prepare((deep,), chunks=(3, 4, 4), dtype=array.dtype, limits=LIMITS)

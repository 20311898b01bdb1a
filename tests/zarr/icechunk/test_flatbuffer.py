"""The verifier of flatbuffers: what is read is inside the buffer, inside its table, aligned and there."""

import struct

import pytest

from periplus.errors import FormatError
from periplus.zarr.icechunk.flatbuffer import root

VTABLE, TABLE, LIST, CHILD = 8, 16, 32, 44
"""Where the parts of the buffer begin."""


def buffer(**changes):
    """A table with a number (slot 0) and a list (slot 1) of two tables, which are the same; changes by position."""
    data = bytearray(struct.pack("<II4H", TABLE, 0, 8, 12, 4, 8))
    data += struct.pack("<iII4x", TABLE - VTABLE, 7, LIST - (TABLE + 8))
    data += struct.pack("<III", 2, CHILD - (LIST + 4), CHILD - (LIST + 8))
    data += struct.pack("<iII", CHILD - VTABLE, 9, 0)
    for place, (kind, value) in changes.items():
        struct.pack_into(kind, data, int(place[1:]), value)
    return bytes(data)


def read(data):
    table = root(data)
    children, counts = table.children(1)
    return table.scalars(0, "<u4").tolist(), children.scalars(0, "<u4").tolist(), counts.tolist()


def test_a_sound_buffer_is_read():
    assert read(buffer()) == ([7], [9, 9], [2])
    assert root(buffer()).has(2).tolist() == [False]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"_0": ("<I", 2**31)}, "outside the buffer"),
        ({"_0": ("<I", TABLE + 2)}, "not aligned"),
        ({"_16": ("<i", 2**31 - 2)}, "outside the buffer"),
        ({"_16": ("<i", -(2**31))}, "outside the buffer"),
        ({"_16": ("<i", TABLE - VTABLE - 1)}, "not aligned"),
        ({"_8": ("<H", 0)}, "vtable"),
        ({"_8": ("<H", 7)}, "vtable"),
        ({"_8": ("<H", 60000)}, "vtable"),
        ({"_8": ("<H", 6)}, "lacks a required field"),
        ({"_10": ("<H", 0)}, "ends outside"),
        ({"_10": ("<H", 60000)}, "ends outside"),
        ({"_12": ("<H", 1)}, "outside its table"),
        ({"_12": ("<H", 10)}, "outside its table"),
        ({"_12": ("<H", 6)}, "not aligned"),
        ({"_14": ("<H", 0)}, "lacks a required field"),
        ({"_24": ("<I", 2**32 - 4)}, "outside the buffer"),
        ({"_32": ("<I", 2**32 - 1)}, "ends outside"),
        ({"_36": ("<I", 1000)}, "outside the buffer"),
    ],
)
def test_what_is_wrong_is_found_before_it_is_followed(changes, said):
    with pytest.raises(FormatError, match=said):
        read(buffer(**changes))


@pytest.mark.parametrize("size", range(0, 56, 4))
def test_a_buffer_that_is_cut_or_of_zeros_is_refused(size):
    for data in (buffer()[:size], bytes(size)):
        with pytest.raises(FormatError):
            read(data)


def test_lists_that_share_their_bytes_cannot_multiply():
    """Two tables, each with the same list as long as the buffer allows: more items than there are bytes for."""
    many = 24
    data = bytearray(struct.pack("<II4H", 16, 0, 6, 8, 4, 0))
    data += struct.pack("<iI", 16 - 8, 4) + struct.pack("<III", 2, 8, 4)
    child = len(data)
    assert child == 36
    data += struct.pack("<iI", child - 8, 4) + struct.pack("<I", many) + bytes(4 * many)
    two, counts = root(bytes(data)).children(0)
    assert counts.tolist() == [2]
    with pytest.raises(FormatError, match="overlap"):
        two.children(0)

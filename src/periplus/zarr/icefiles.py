"""The files of an Icechunk repository, format 1: snapshots and manifests as bytes in, nodes and references out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.frames import unzstd
from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.zarr.flatbuffer import Tables, root

MAGIC = "ICE🧊CHUNK".encode()
HEADER = 39
"""Magic number, 24 bytes that name the writer, then format version, kind of file and compression, a byte each."""
SNAPSHOT, MANIFEST = 1, 2
LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ARRAY_NODE = 1


@dataclass(frozen=True, slots=True)
class Node:
    """A group or an array of a snapshot."""

    id: bytes
    path: str
    """Without the leading slash; empty for the root."""
    document: dict[str, Any]
    """Its zarr.json."""
    manifests: tuple[bytes, ...]
    """Ids of the manifests that list its chunks; none for a group."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRefs:
    """References of one array in one manifest, as columns."""

    node: bytes
    chunk: NDArray[np.int64]
    """(n, ndim)."""
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    inline: list[bytes | None]
    native: list[bytes | None]
    """Id of a chunk file of the repository itself."""
    location: list[str | None]
    etag: list[str | None]
    modified: NDArray[np.int64]
    """The latest second, since 1970, at which the object may have been changed; 0 for unknown."""


def spelled(identity: bytes) -> str:
    """An id as file names have it: Crockford's base 32."""
    bits = len(identity) * 8
    count = -(-bits // 5)
    number = int.from_bytes(identity) << (count * 5 - bits)
    return "".join(LETTERS[(number >> 5 * place) & 31] for place in reversed(range(count)))


def payload(data: bytes, kind: int, limits: Limits) -> bytes:
    """The flatbuffer inside a file, after its header was checked."""
    if data[: len(MAGIC)] != MAGIC or len(data) < HEADER:
        raise FormatError("this is no file of an Icechunk repository", offset=0)
    version, found, compression = data[HEADER - 3 : HEADER]
    if version != 1:
        raise FormatError(f"Icechunk format {version} is not read, only 1")
    if found != kind:
        raise FormatError(f"the file is of kind {found} where {kind} is due")
    if compression == 0:
        return data[HEADER:]
    if compression == 1:
        return unzstd(data[HEADER:], most=limits.memory_bytes)
    raise FormatError(f"compression {compression} of Icechunk files is not known")


def read_snapshot(data: bytes, limits: Limits) -> list[Node]:
    """Every group and array of a snapshot file."""
    nodes, _ = root(payload(data, SNAPSHOT, limits)).children(2)
    there, ids = nodes.structs(0, 8)
    if not there.all():
        raise FormatError("a node of the snapshot has no id")
    paths, documents = nodes.octet_vectors(1), nodes.octet_vectors(2)
    is_array = nodes.scalars(3, "u1") == ARRAY_NODE
    listed, counts = nodes[is_array].child(4).children(2)
    _, names = listed.structs(0, 12)
    manifests = iter(np.split(names, np.cumsum(counts)[:-1])) if len(counts) else iter(())
    return [
        Node(
            id=ids[k].tobytes(),
            path=_text(paths[k]).strip("/"),
            document=_document(documents[k]),
            manifests=tuple(dict.fromkeys(row.tobytes() for row in next(manifests))) if is_array[k] else (),
        )
        for k in range(len(nodes))
    ]


def read_manifest(data: bytes, rank: Callable[[bytes], int | None], limits: Limits) -> list[ChunkRefs]:
    """References by array; `rank` tells how many dimensions the array of a node has, None for one not asked for."""
    arrays, _ = root(payload(data, MANIFEST, limits)).children(1)
    there, ids = arrays.structs(0, 8)
    if not there.all():
        raise FormatError("an array of the manifest has no id")
    found = []
    for k in range(len(arrays)):
        node = ids[k].tobytes()
        ndim = rank(node)
        if ndim is not None:
            refs, _ = arrays[k].children(1)
            found.append(_columns(node, refs, ndim))
    return found


def _columns(node: bytes, refs: Tables, ndim: int) -> ChunkRefs:
    if (refs.field(8) >= 0).any():
        raise FormatError("compressed locations of virtual chunks are of Icechunk format 2, which is not read")
    has_id, ids = refs.structs(4, 12)
    native: list[bytes | None] = [None] * len(refs)
    for row, identity in zip(np.flatnonzero(has_id).tolist(), ids, strict=True):
        native[row] = identity.tobytes()
    locations: dict[bytes, str] = {}
    return ChunkRefs(
        node=node,
        chunk=refs.numbers(0, "<u4", ndim),
        offset=refs.scalars(2, "<u8"),
        length=refs.scalars(3, "<u8"),
        inline=refs.octet_vectors(1),
        native=native,
        location=[None if raw is None else _shared(raw, locations) for raw in refs.octet_vectors(5)],
        etag=[None if raw is None else _shared(raw, locations) for raw in refs.octet_vectors(6)],
        modified=refs.scalars(7, "<u4"),
    )


def _shared(raw: bytes, seen: dict[bytes, str]) -> str:
    """The text, as one object wherever it occurs: a million references name a few files."""
    if raw not in seen:
        seen[raw] = _text(raw)
    return seen[raw]


def _text(raw: bytes | None) -> str:
    try:
        return (raw or b"").decode()
    except UnicodeDecodeError:
        raise FormatError("a text in an Icechunk file is not UTF-8") from None


def _document(raw: bytes | None) -> dict[str, Any]:
    try:
        document = json.loads(raw or b"")
    except (ValueError, RecursionError):
        raise FormatError("the metadata of a node are not JSON") from None
    if not isinstance(document, dict):
        raise FormatError("the metadata of a node are no JSON object")
    return document

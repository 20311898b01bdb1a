"""The files of an Icechunk repository, format 1: snapshots and manifests as bytes in, nodes and references out."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.compressions import unzstd
from periplus.errors import FormatError
from periplus.limits import Limits, json_allowance, json_cost
from periplus.model import Inline
from periplus.parse.json import parse_json
from periplus.zarr.icechunk.flatbuffer import Tables, root

MAGIC = "ICE🧊CHUNK".encode()
HEADER = 39
"""Magic number, 24 bytes that name the writer, then format version, kind of file and compression, a byte each."""
SNAPSHOT, MANIFEST = 1, 2
EXACT, FILES = "periplus.exact-times", "periplus.files"
"""Names in the metadata of our commits, which other readers ignore: the second has the files table, in base64."""
LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
CROCKFORD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", LETTERS)
ARRAY_NODE, GROUP_NODE = 1, 2
INT64 = (1 << 63) - 1
MANIFEST_FILE = np.dtype(
    {"names": ["id", "bytes", "refs"], "formats": ["V12", "<u8", "<u4"], "offsets": [0, 16, 24], "itemsize": 32}
)
DIMENSION = np.dtype([("length", "<u8"), ("chunk", "<u8")])
RANGE = np.dtype([("first", "<u4"), ("end", "<u4")])


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotNode:
    """A group or an array of a snapshot."""

    id: bytes
    path: str
    """Without the leading slash; empty for the root."""
    document: dict[str, Any]
    """Its zarr.json."""
    shape: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    """Chunks along each dimension; empty for a group."""
    manifests: Mapping[bytes, NDArray[np.int64]] = field(default_factory=dict)
    """(n, 2, ndim) by the id of each manifest that lists its chunks: first and past-the-last chunk of n boxes."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest as a snapshot declares it."""

    bytes: int
    refs: int


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One version of a repository."""

    nodes: list[SnapshotNode]
    manifests: Mapping[bytes, ManifestFile]
    exact: bool
    """Whether times of references are those of the sources, as we write them, and not just later ones."""
    files: bytes | None = None
    """The files table, where we wrote the snapshot."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRefs:
    """References of one array in one manifest, as columns."""

    node: bytes
    chunk: NDArray[np.int64]
    """(n, ndim)."""
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    """Of inline bytes as well."""
    inline: Inline | None
    native: list[bytes | None]
    """Id of a chunk file of the repository itself."""
    location: list[str | None]
    etag: list[str | None]
    modified: NDArray[np.int64]
    """The latest second, since 1970, at which the object may have been changed; 0 for unknown."""


def rounded_up(moment: datetime) -> datetime:
    """The time of a source as references have it: whole seconds, none earlier than the source."""
    return moment if not moment.microsecond else moment.replace(microsecond=0) + timedelta(seconds=1)


def spelled(identity: bytes) -> str:
    """An id as file names have it: Crockford's base 32."""
    return base64.b32encode(identity).decode().rstrip("=").translate(CROCKFORD)


def payload(data: bytes, kind: int, limits: Limits) -> bytes:
    """The flatbuffer inside a file, after its header was checked."""
    if data[: len(MAGIC)] != MAGIC or len(data) < HEADER:
        raise FormatError("this is not a file of an Icechunk repository", offset=0)
    version, found, compression = data[HEADER - 3 : HEADER]
    if version != 1:
        raise FormatError(f"Icechunk format {version} is unsupported; only 1 is supported")
    if found != kind:
        raise FormatError(f"the file is of kind {found} where {kind} is due")
    if compression == 0:
        return data[HEADER:]
    if compression == 1:
        return unzstd(data[HEADER:], most=limits.memory_bytes // 4)
    raise FormatError(f"compression {compression} of Icechunk files is unsupported")


def read_snapshot(data: bytes, identity: str, limits: Limits) -> Snapshot:
    """Every group and array of the snapshot file of that name, and the manifests it refers to."""
    table = root(payload(data, SNAPSHOT, limits))
    _same_name("snapshot", table, identity)
    found, _ = table.children(2)
    files, _ = table.records(6, MANIFEST_FILE, 8)
    manifests = {one["id"].tobytes(): ManifestFile(int(one["bytes"]), int(one["refs"])) for one in files.reshape(-1)}
    kinds = found.scalars(3, "u1")
    if not np.isin(kinds, (ARRAY_NODE, GROUP_NODE)).all():
        raise FormatError("a node of the snapshot is neither an array nor a group")
    contents = found.child(4)
    arrays = iter(_arrays(contents[kinds == ARRAY_NODE], manifests))
    ids = found.identities(0, 8)
    paths, documents = found.octet_vectors(1, required=True), found.octet_vectors(2, required=True)
    memory = json_allowance(limits, what="the metadata of all arrays and groups")
    memory.take(sum(json_cost(document or b"") for document in documents))
    nodes = []
    for identity_of, raw, document, kind in zip(ids, paths, documents, kinds.tolist(), strict=True):
        path = _text(raw)
        if not path.startswith("/"):
            raise FormatError(f"the snapshot has a node with the path {path[:80]!r}")
        metadata = _document(document, path)
        if metadata.get("node_type") != ("array" if kind == ARRAY_NODE else "group"):
            raise FormatError(f"{path}: the snapshot and the metadata of the node disagree about what it is")
        node = SnapshotNode(identity_of, path.strip("/"), metadata)
        nodes.append(_checked(replace(node, **next(arrays))) if kind == ARRAY_NODE else node)
    for what in ("id", "path"):
        if len({getattr(node, what) for node in nodes}) != len(nodes):
            raise FormatError(f"two nodes of the snapshot have the same {what}")
    listed, _ = table.children(5)
    notes = dict(zip(listed.octet_vectors(0), listed.octet_vectors(1), strict=True))
    table_of_files = notes.get(FILES.encode())
    return Snapshot(
        nodes,
        manifests,
        exact=EXACT.encode() in notes,
        files=None if table_of_files is None else _from_base64(table_of_files),
    )


def _from_base64(note: bytes) -> bytes:
    """The bytes that a text of the metadata of a commit encodes; Icechunk stores the text as MessagePack."""
    first = note[:1]
    size = {b"\xd9": 1, b"\xda": 2, b"\xdb": 4}.get(first, 0)
    text = note[1 + size :]
    length = int.from_bytes(note[1 : 1 + size]) if size else (first[0] - 0xA0 if first else -1)
    try:
        if len(text) != length:
            raise ValueError
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise FormatError(f"{FILES} in the metadata of the snapshot is malformed") from None


def _arrays(tables: Tables, manifests: Mapping[bytes, ManifestFile]) -> Iterator[dict[str, Any]]:
    """Shape, grid and manifests of each array node."""
    sizes, ranks = tables.records(0, DIMENSION, 8)
    listed, counts = tables.children(2)
    names = listed.identities(0, 12)
    boxes, sides = listed.records(1, RANGE, 4)
    dims, parts, corners = _split(sizes, ranks), _split(np.arange(len(names)), counts), _split(boxes, sides)
    for sized, rows in zip(dims, parts, strict=True):
        shape = tuple(map(int, sized["length"]))
        chunks = tuple(map(int, sized["chunk"]))
        if 0 in chunks:
            raise FormatError("an array of the snapshot has chunks of no size")
        extents: dict[bytes, list[NDArray[np.int64]]] = {}
        for row in rows.tolist():
            if names[row] not in manifests:
                raise FormatError("the snapshot lacks a manifest that one of its arrays refers to")
            box = np.stack([corners[row]["first"], corners[row]["end"]]).astype(np.int64)
            if box.shape[1] != len(shape) or (box[0] > box[1]).any():
                raise FormatError("the extent of a manifest does not fit the array it belongs to")
            extents.setdefault(names[row], []).append(box)
        yield {
            "shape": shape,
            "grid": tuple(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True)),
            "manifests": {name: np.stack(some) for name, some in extents.items()},
        }


def _split(rows: NDArray[Any], counts: NDArray[np.int64]) -> list[NDArray[Any]]:
    return np.split(rows, np.cumsum(counts)[:-1]) if len(counts) else []


def _checked(node: SnapshotNode) -> SnapshotNode:
    """The array node, where its metadata declare the same shape and the same regular grid."""
    metadata = node.document
    if metadata.get("shape") != list(node.shape):
        raise FormatError(f"/{node.path}: the snapshot and the metadata of the array differ in shape")
    grid = metadata.get("chunk_grid")
    chunks = grid.get("configuration") if isinstance(grid, dict) and grid.get("name") == "regular" else None
    if isinstance(chunks, dict) and isinstance(sides := chunks.get("chunk_shape"), list):
        valid = len(sides) == len(node.shape) and all(type(side) is int and side > 0 for side in sides)
        if not valid or node.grid != tuple(-(-n // side) for n, side in zip(node.shape, sides, strict=True)):
            raise FormatError(f"/{node.path}: the snapshot and the metadata of the array differ in chunks")
    return node


def read_manifest(
    data: bytes, identity: bytes, declared: ManifestFile, wanted: Mapping[bytes, SnapshotNode], limits: Limits
) -> list[ChunkRefs]:
    """References by array, of the arrays in `wanted`; `declared` is the entry of the file in the snapshot."""
    if len(data) != declared.bytes:
        raise FormatError(f"a manifest has {len(data)} bytes where the snapshot declares {declared.bytes}")
    table = root(payload(data, MANIFEST, limits))
    _same_name("manifest", table, spelled(identity))
    arrays, _ = table.children(1)
    ids = arrays.identities(0, 8)
    refs, counts = arrays.children(1)
    if len(refs) != declared.refs:
        raise FormatError(f"a manifest lists {len(refs)} chunks where the snapshot declares {declared.refs}")
    if any(one >= other for one, other in pairwise(ids)):
        raise FormatError("the arrays of a manifest are not in order")
    ends = np.cumsum(counts).tolist()
    rows = {node: slice(end - count, end) for node, end, count in zip(ids, ends, counts.tolist(), strict=True)}
    missing = [node.path for key, node in wanted.items() if key not in rows]
    if missing:
        raise FormatError(f"a manifest of /{missing[0]} does not list the array")
    return [_columns(node, refs[rows[key]], node.manifests[identity]) for key, node in wanted.items()]


def _columns(node: SnapshotNode, refs: Tables, boxes: NDArray[np.int64]) -> ChunkRefs:
    if refs.has(8).any():
        raise FormatError("compressed locations of virtual chunks belong to Icechunk format 2, which is unsupported")
    locations: dict[bytes, str] = {}
    start, count = refs.vectors(1, 1, 1)
    length = np.where(start < 0, refs.scalars(3, "<u8"), count)
    found = ChunkRefs(
        node=node.id,
        chunk=refs.numbers(0, "<u4", len(node.shape)),
        offset=refs.scalars(2, "<u8"),
        length=length,
        inline=Inline(start, refs.octets).trimmed(length) if (start >= 0).any() else None,
        native=refs.optional_identities(4, 12),
        location=[None if raw is None else _shared(raw, locations) for raw in refs.octet_vectors(5)],
        etag=[None if raw is None else _shared(raw, locations) for raw in refs.octet_vectors(6)],
        modified=refs.scalars(7, "<u4"),
    )
    if ((refs.has(1) + 0) + refs.has(4) + refs.has(5) != 1).any():
        raise FormatError(f"a chunk of /{node.path} is not either inline, in the repository or in a file")
    if (found.offset > INT64 - found.length).any():
        raise FormatError(f"offset plus length of a chunk of /{node.path} overflows")
    _check_positions(node, found.chunk, boxes)
    return found


def _check_positions(node: SnapshotNode, chunk: NDArray[np.int64], boxes: NDArray[np.int64]) -> None:
    """FormatError unless the chunks are in the grid, in the extent of their manifest, and in order, each once."""
    if (chunk >= np.array([min(count, 1 << 32) for count in node.grid], np.int64)).any():
        raise FormatError(f"a chunk of /{node.path} is outside the grid of the array")
    inside = np.zeros(len(chunk), bool)
    for first, end in boxes:
        inside |= ((chunk >= first) & (chunk < end)).all(axis=1)
    if not inside.all():
        raise FormatError(f"a chunk of /{node.path} is outside the extent of its manifest")
    step = np.sign(np.diff(chunk, axis=0))
    # The first dimension in which neighbours differ decides their order.
    column = np.argmax(step != 0, axis=1) if step.shape[1] else np.zeros(len(step), int)
    ascending = step[np.arange(len(step)), column] > 0 if step.shape[1] else np.zeros(len(step), bool)
    if not ascending.all():
        raise FormatError(f"the chunks of /{node.path} in a manifest are not in order")


def _same_name(kind: str, table: Tables, name: str) -> None:
    """FormatError where a file holds another object than the one it is named after."""
    held = spelled(table.identities(0, 12)[0])
    if held != name:
        raise FormatError(f"the file of {kind} {name} holds {kind} {held}")


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


def _document(raw: bytes | None, path: str) -> dict[str, Any]:
    document = parse_json(raw or b"", what=f"the metadata of {path}")
    if not isinstance(document, dict):
        raise FormatError(f"the metadata of {path} is not a JSON object")
    return document

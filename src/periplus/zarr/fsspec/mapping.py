"""A kerchunk Parquet directory as a mapping from keys to references; its records are read on demand."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from itertools import product

import numpy as np

from periplus.errors import FormatError, StaleError
from periplus.forks import renewed
from periplus.limits import Limits
from periplus.parse.zarr import ArrayMetadata, NodeDocuments, nodes_of
from periplus.zarr.kerchunk.extension import REPLACED, DeclaredFiles, read_declaration
from periplus.zarr.kerchunk.records import Record, read_record
from periplus.zarr.kerchunk.references import Reference, parse, span

Load = Callable[[str], bytes]
"""The bytes of a file of the directory, by its name there; FileNotFoundError where there is none."""
ANY_RANK = Limits(dims=64)
_NONE = Record(paths=[], path=np.empty(0, np.int32), offset=np.empty(0, np.int64), size=np.empty(0, np.int64))


class RecordMapping(MutableMapping[str, Reference]):
    """Keys and references; items that are set are kept in memory."""

    _lock: threading.Lock

    def __init__(
        self,
        load: Load,
        fill: Callable[[str, str], str],
        *,
        cache_size: int = 128,
        identity: Callable[[], object] = lambda: None,
    ) -> None:
        """`identity` returns what distinguishes one version of `.zmetadata` from another, such as its time."""
        self._identity, self._first = identity, identity()
        root = parse(load(".zmetadata"))
        documents, record_size = root.get("metadata"), root.get("record_size")
        if not isinstance(documents, Mapping) or type(record_size) is not int or record_size < 1:
            raise FormatError(".zmetadata: metadata and record_size are required; this may be a Zarr store")
        self.record_size: int = record_size
        self._declared = read_declaration(root)
        self._held: dict[str, Reference | None] = {key: json.dumps(doc).encode() for key, doc in documents.items()}
        if any(key.rpartition("/")[2] == ".zgroup" or key.endswith(".zarray") for key in documents):
            whole = {"zarr_consolidated_format": 1, "metadata": documents}
            self._held.setdefault(".zmetadata", json.dumps(whole).encode())
        # The paths of nodes become paths of record files; those that lead out of the directory are refused.
        nodes = nodes_of(documents)
        self._grids = {path: _ChunkGrid(node) for path, node in nodes.items() if node.kind == "array"}
        self._load, self._fill = load, fill
        self._records: OrderedDict[tuple[str, int], Record] = OrderedDict()
        self._most, self._limits = cache_size, Limits()
        renewed(self, _lock=threading.Lock)

    # --- one key ----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Reference:
        if key in self._held:
            held = self._held[key]
            if held is None:
                raise KeyError(key)
            return held
        path, number = self._place(key)
        record = self._record(path, number // self.record_size)
        found = self._reference(record, number % self.record_size, key)
        if found is None:
            raise KeyError(key)
        return found

    def at_hand(self, key: str) -> bool:
        """Whether a key can be answered without reading a file."""
        if key in self._held:
            return True
        try:
            path, number = self._place(key)
        except KeyError:
            return True
        return (path, number // self.record_size) in self._records

    def _place(self, key: str) -> tuple[str, int]:
        """The array of a chunk's key, and the chunk's number in its grid."""
        head = key
        while head:
            head = head.rpartition("/")[0]
            grid = self._grids.get(head)
            if grid is not None:
                return head, grid.number(key[len(head) + 1 if head else 0 :], key)
        raise KeyError(key)

    def _record(self, path: str, number: int) -> Record:
        place = path, number
        with self._lock:
            if place in self._records:
                self._records.move_to_end(place)
                return self._records[place]
        name = f"{path}/refs.{number}.parq" if path else f"refs.{number}.parq"
        try:
            record = read_record(self._load(name), key=name, limits=self._limits, declared=self._declared)
        except FileNotFoundError:
            if self._declared.has(path, number):
                raise self._declared.lost(name, self._now()) from None
            record = _NONE
        if self._declared.write is None and self._identity() != self._first:
            raise StaleError(f"{name}: {REPLACED}")
        with self._lock:
            self._records[place] = record
            while len(self._records) > self._most:
                self._records.popitem(last=False)
        return record

    def _now(self) -> DeclaredFiles | None:
        """What the directory declares now."""
        try:
            return read_declaration(parse(self._load(".zmetadata")))
        except (OSError, FormatError):
            return None

    def _reference(self, record: Record, row: int, key: str) -> Reference | None:
        if row >= len(record):
            return None
        inline = record.raw_bytes(row)
        if inline is not None:
            return inline
        if record.path[row] < 0:
            return None
        url = self._fill(record.paths[int(record.path[row])], key)
        if record.counts is not None and record.counts[row]:
            assert record.starts is not None
            assert record.offsets is not None
            assert record.sizes is not None
            start, stop = int(record.starts[row]), int(record.starts[row] + record.counts[row])
            held = [[int(n) for n in pair] for pair in zip(record.offsets[start:stop], record.sizes[start:stop])]
            for offset, length in held:
                span(key, offset, length)
            return [url, held]
        offset, length = int(record.offset[row]), int(record.size[row])
        span(key, offset, length)
        return [url, offset, length] if offset or length else [url]

    # --- all keys ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[str]:
        yield from (key for key, held in self._held.items() if held is not None)
        for path in self._grids:
            yield from (key for key in self.chunk_keys(path) if key not in self._held)

    def chunk_keys(self, path: str) -> Iterator[str]:
        """Keys of the chunks of an array that are there."""
        grid = self._grids[path]
        prefix = f"{path}/" if path else ""
        record, held = -1, _NONE
        for number, place in enumerate(product(*(range(n) for n in grid.counts))):
            if number // self.record_size != record:
                record = number // self.record_size
                held = self._record(path, record)
            row = number % self.record_size
            if row < len(held) and (held.path[row] >= 0 or held.raw_bytes(row) is not None):
                yield prefix + grid.keys.key(place)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __setitem__(self, key: str, value: Reference) -> None:
        self._held[key] = value

    def __delitem__(self, key: str) -> None:
        self[key]
        self._held[key] = None

    def arrays(self) -> list[str]:
        """Paths of the arrays whose chunks are in record files."""
        return list(self._grids)

    def metadata_keys(self) -> list[str]:
        """Keys that are not in record files."""
        return [key for key, held in self._held.items() if held is not None]


class _ChunkGrid:
    """How many chunks an array has along each dimension, and how their keys are spelled."""

    def __init__(self, node: NodeDocuments) -> None:
        metadata = node.parse(ANY_RANK)
        assert isinstance(metadata, ArrayMetadata)
        if metadata.edges is not None:
            raise FormatError(f"{node.path}: a rectilinear chunk grid is unsupported in Parquet references")
        self.counts = [-(-n // size) for n, size in zip(metadata.shape, metadata.chunks, strict=True)]
        self.keys = metadata.chunk_keys
        self._pattern = self.keys.pattern(len(self.counts))

    def number(self, spelled: str, key: str) -> int:
        """The number of the chunk in C order; KeyError where the array has no such chunk."""
        found = self._pattern.fullmatch(spelled)
        position = None if found is None else [int(n) for n in found.groups()]
        if position is None or any(n >= count for n, count in zip(position, self.counts)):
            raise KeyError(key)
        number = 0
        for n, count in zip(position, self.counts):
            number = number * count + n
        return number

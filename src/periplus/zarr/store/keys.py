"""Keys of a Zarr store over an index: what a key names, and which keys there are. Nothing but the index is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from periplus.model import Shape
from periplus.zarr.description.metadata import Leaf, ZarrLayout
from periplus.zarr.store.lookup import ChunkLookup

DOCUMENT = "zarr.json"
_CHUNK = re.compile(r"(.+)/c((?:/(?:0|[1-9][0-9]{0,17}))*)")


def chunk_named(layout: ZarrLayout, key: str) -> tuple[Leaf, Shape] | None:
    """The array and the position that a key of a chunk names; None where the store can have no such key."""
    found = _CHUNK.fullmatch(key)
    leaf = None if found is None else layout.leaves.get(found[1])
    if found is None or leaf is None:
        return None
    position = tuple([int(number) for number in found[2].split("/")[1:]])
    grid = leaf.grid
    if len(position) != len(grid) or any(p >= n for p, n in zip(position, grid)):
        return None
    return leaf, position


def group_named(layout: ZarrLayout, key: str) -> str | None:
    """The group or array whose metadata a key names; None for other keys."""
    path = "" if key == DOCUMENT else key[: -len(DOCUMENT) - 1] if key.endswith(f"/{DOCUMENT}") else None
    return path if path is not None and (path in layout.groups or path in layout.leaves) else None


def keys_under(layout: ZarrLayout, lookup: ChunkLookup, prefix: str) -> Iterator[str]:
    """Every key that begins with a prefix, which may end within a name."""
    for group in layout.groups:
        stem = f"{group}/" if group else ""
        if not (stem.startswith(prefix) or prefix.startswith(stem)):
            continue
        if (stem + DOCUMENT).startswith(prefix):
            yield stem + DOCUMENT
        for path, leaf in layout.leaves_in(group).items():
            if f"{path}/{DOCUMENT}".startswith(prefix):
                yield f"{path}/{DOCUMENT}"
            yield from _chunks_under(leaf, lookup, prefix)


def _chunks_under(leaf: Leaf, lookup: ChunkLookup, prefix: str) -> Iterator[str]:
    stem = f"{leaf.path}/c"
    if not (stem.startswith(prefix) or prefix.startswith(stem)):
        return
    for position in _present(leaf, lookup, _fixed(prefix, stem, len(leaf.grid))):
        key = "/".join([stem, *map(str, position)])
        if key.startswith(prefix):
            yield key


def names_in(layout: ZarrLayout, lookup: ChunkLookup, folder: str) -> Iterator[str]:
    """Names directly in a folder: groups, arrays, metadata, and the folders of chunk keys."""
    path = folder.strip("/")
    if path in layout.groups:
        yield DOCUMENT
        yield from layout.members(path)
        return
    if path in layout.leaves:
        leaf = layout.leaves[path]
        yield DOCUMENT
        if any(True for _ in _present(leaf, lookup, ())):
            yield "c"
        return
    owner, _, rest = path.rpartition("/c/") if "/c/" in path else (path.removesuffix("/c"), "", "")
    leaf_found = layout.leaves.get(owner)
    if leaf_found is None or owner == path:
        return
    numbers = rest.split("/") if rest else []
    if len(numbers) < len(leaf_found.grid) and all(_is_number(n) for n in numbers):
        begun = tuple(map(int, numbers))
        seen = dict.fromkeys(position[len(begun)] for position in _present(leaf_found, lookup, begun))
        yield from map(str, seen)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


def _fixed(prefix: str, stem: str, rank: int) -> Shape:
    """The leading positions that a prefix gives completely."""
    begun = prefix[len(stem) + 1 :].split("/")[:-1] if len(prefix) > len(stem) else []
    return tuple(map(int, begun[:rank])) if all(_is_number(n) for n in begun) else ()


def _present(leaf: Leaf, lookup: ChunkLookup, begun: Shape) -> Iterator[Shape]:
    """Positions of the presented grid that hold something, those that begin so."""
    grid = leaf.grid
    if any(b >= n for b, n in zip(begun, grid)):
        return
    if leaf.array is None or leaf.array.edges is not None:
        yield from product(*[(b,) for b in begun], *(range(n) for n in grid[len(begun) :]))
        return
    for found in lookup.present(leaf.array, begun):
        yield from map(tuple, found.T.tolist())

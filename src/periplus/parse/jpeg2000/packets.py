"""The packets of a JPEG 2000 tile: their number, resolutions and order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError

LRCP, RLCP, RPCL, PCRL, CPRL = range(5)
Bounds: TypeAlias = tuple[int, int, int, int]
"""Left, top, right and bottom of a tile on the reference grid."""
Column: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ComponentCoding:
    """How one component is cut."""

    steps: tuple[int, int]
    """Horizontal and vertical subsampling."""
    precincts: tuple[tuple[int, int], ...]
    """Width and height of precincts as powers of 2, by resolution, the lowest first."""
    blocks: tuple[int, int, int] = (6, 6, 0)
    """Width and height of code-blocks as powers of 2, and their style."""


@dataclass(frozen=True, slots=True)
class OrderChange:
    """A change of the packet order (POC): the remaining packets of these resolutions and components, up to a layer."""

    first_resolution: int
    first_component: int
    layers: int
    resolutions: int
    components: int
    progression: int


@dataclass(frozen=True, slots=True, eq=False)
class PacketOrder:
    """Columns of equal length, in the order of the packets in the tile."""

    layer: Column
    resolution: Column
    component: Column
    precinct: Column

    def __len__(self) -> int:
        return len(self.layer)


def component_extent(start: int, stop: int, step: int, shift: int) -> tuple[int, int]:
    """Start and stop along one axis of a component that is `shift` levels below the full resolution."""
    size = step << shift
    return -(-start // size), -(-stop // size)


def count_precincts(bounds: Bounds, codings: Sequence[ComponentCoding], resolution: int | None = None) -> int:
    """Precincts of a tile, in all components; of one resolution where that is given."""
    total = 0
    for coding, alike in Counter(codings).items():
        for number, _ in enumerate(coding.precincts):
            if resolution is None or number == resolution:
                wide, high = precinct_grid(bounds, coding, number)
                total += wide * high * alike
    return total


def count_code_blocks(bounds: Bounds, codings: Sequence[ComponentCoding]) -> int:
    """Code-blocks of a tile in all components, and a few more: those at edges are counted twice."""
    total = 0
    for coding, alike in Counter(codings).items():
        for resolution, sizes in enumerate(coding.precincts):
            number, down = (3 * alike, 1) if resolution else (alike, 0)
            for axis in (0, 1):
                shift = len(coding.precincts) - 1 - resolution
                start, stop = component_extent(bounds[axis], bounds[axis + 2], coding.steps[axis], shift)
                size = min(coding.blocks[axis], sizes[axis] - down)
                number *= ((stop - start) >> (size + down)) + 2 if stop > start else 0
            total += number
    return total


def precinct_grid(bounds: Bounds, coding: ComponentCoding, resolution: int) -> tuple[int, int]:
    """Precincts across and down one resolution of a component."""
    shift = len(coding.precincts) - 1 - resolution
    found = []
    for axis in (0, 1):
        start, stop = component_extent(bounds[axis], bounds[axis + 2], coding.steps[axis], shift)
        size = coding.precincts[resolution][axis]
        found.append(-(-stop >> size) - (start >> size) if stop > start else 0)
    wide, high = found
    return (wide, high) if wide and high else (0, 0)


def packet_order(
    bounds: Bounds,
    codings: Sequence[ComponentCoding],
    layers: int,
    progression: int,
    changes: Sequence[OrderChange] = (),
) -> PacketOrder:
    """All packets of a tile in their order; the caller has made sure that there are not too many."""
    resolution, component, precinct, y, x = _sites(bounds, codings)
    everything = OrderChange(0, 0, layers, 33, len(codings), progression)
    sent = np.zeros(len(resolution), np.int64)
    found: list[tuple[Column, Column]] = []
    for change in changes or (everything,):
        chosen = (resolution >= change.first_resolution) & (resolution < change.resolutions)
        chosen &= (component >= change.first_component) & (component < change.components)
        # No layer is repeated: each precinct continues after the layers of earlier progressions.
        left = np.where(chosen, np.maximum(min(change.layers, layers) - sent, 0), 0)
        site = np.repeat(np.arange(len(resolution)), left)
        layer = np.arange(len(site)) - np.repeat(np.cumsum(left) - left, left) + sent[site]
        keys = {
            LRCP: (precinct[site], component[site], resolution[site], layer),
            RLCP: (precinct[site], component[site], layer, resolution[site]),
            RPCL: (layer, component[site], x[site], y[site], resolution[site]),
            PCRL: (layer, resolution[site], component[site], x[site], y[site]),
            CPRL: (layer, resolution[site], x[site], y[site], component[site]),
        }[change.progression]
        order = np.lexsort(keys)
        found.append((layer[order], site[order]))
        sent += left
    layer, site = (np.concatenate([pair[n] for pair in found]) for n in (0, 1))
    return PacketOrder(layer, resolution[site], component[site], precinct[site])


def _sites(bounds: Bounds, codings: Sequence[ComponentCoding]) -> tuple[Column, ...]:
    """Resolution, component, number, and place (y, x) on the reference grid of every precinct."""
    found: list[tuple[Column, ...]] = []
    for component, coding in enumerate(codings):
        for resolution, sizes in enumerate(coding.precincts):
            wide, high = precinct_grid(bounds, coding, resolution)
            if not wide:
                continue
            shift = len(coding.precincts) - 1 - resolution
            places = []
            for axis, number in ((1, high), (0, wide)):
                start, _ = component_extent(bounds[axis], bounds[axis + 2], coding.steps[axis], shift)
                size, unit = sizes[axis], coding.steps[axis] << (sizes[axis] + shift)
                place = ((start >> size) + np.arange(number, dtype=np.int64)) * unit
                if start & ((1 << size) - 1):
                    # A precinct that the tile's edge cuts is ordered by that edge.
                    place[0] = bounds[axis]
                places.append(place)
            total = wide * high
            found.append(
                (
                    np.full(total, resolution, np.int64),
                    np.full(total, component, np.int64),
                    np.arange(total, dtype=np.int64),
                    np.repeat(places[0], wide),
                    np.tile(places[1], high),
                )
            )
    if not found:
        raise FormatError("the tile holds no packet")
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))

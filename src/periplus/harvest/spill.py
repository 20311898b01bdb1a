"""Columns on disk while they grow: one file a column, mapped when done, so that memory holds one block at a time."""

from __future__ import annotations

import mmap
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from periplus.harvest.part import Piece
from periplus.model import Refs

_COLUMNS = {"offset": "<i8", "length": "<i8", "chunk": "<i4", "part": "<u2", "encoding": "<u2"}


class Spilled(NamedTuple):
    """Where one block of references went."""

    row: int
    chunk: int
    rank: int
    parted: bool
    coded: bool

    def within(self, start: int, stop: int) -> Piece:
        """The piece that rows [start, stop) of the block are."""
        return Piece(self.row + start, self.row + stop, self.chunk + self.rank * start, self.parted, self.coded)


class Spill:
    """Takes blocks of references; positions are written row by row, so that any run of rows is one piece."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, IO[bytes]] = {}
        self._open = ExitStack()
        self._rows = self._positions = 0

    def __enter__(self) -> Self:
        with ExitStack() as opening:  # where one cannot be opened, the others are closed
            for name in _COLUMNS:
                self._files[name] = opening.enter_context((self._folder / name).open("wb"))
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def add(self, refs: Refs) -> Spilled:
        """Write one block down."""
        count, rank = len(refs), refs.chunk.shape[0]
        place = Spilled(self._rows, self._positions, rank, refs.part is not None, refs.encoding is not None)
        if not count:
            return place
        nothing = np.zeros(count, np.uint16)
        for name, column in (
            ("offset", refs.offset),
            ("length", refs.length),
            ("chunk", refs.chunk.T),
            ("part", nothing if refs.part is None else refs.part),
            ("encoding", nothing if refs.encoding is None else refs.encoding),
        ):
            self._files[name].write(np.ascontiguousarray(column, _COLUMNS[name]).data)
        self._rows += count
        self._positions += count * rank
        return place

    def columns(self) -> tuple[dict[str, NDArray[Any]], list[mmap.mmap]]:
        """The columns, and the files they are mapped from."""
        self._open.close()
        result: dict[str, NDArray[Any]] = {name: np.empty(0, dtype) for name, dtype in _COLUMNS.items()}
        maps = []
        for name, dtype in _COLUMNS.items() if self._rows else ():
            with (self._folder / name).open("rb") as file:
                maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            result[name] = np.frombuffer(maps[-1], dtype)
        return result, maps

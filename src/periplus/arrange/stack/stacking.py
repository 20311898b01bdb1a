"""Arrange files as a stack: one array with a new leading dimension, in the order of its coordinate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from periplus.arrange.arrangement import Arrangement, FileEntry, Lookup, array_path, assemble, files_table
from periplus.arrange.collect.names import safe_path
from periplus.arrange.compatibility import Misfits, difference, reference_files, structure_key
from periplus.arrange.messages import file_name, file_names
from periplus.arrange.packing import common_attributes, has_missing_chunks, packing_of, physical_dtype
from periplus.arrange.pattern import suggest_pattern
from periplus.arrange.stack.arrays import (
    StackBuilder,
    StackedArray,
    StackedFile,
    packing_conflict,
    stack_builder,
)
from periplus.arrange.stack.coordinate import FileCoordinates, StackSteps, assign_steps, read_coordinates
from periplus.errors import ConflictError
from periplus.model import Array, Coordinate, Files


def stack(
    entries: Sequence[FileEntry],
    refs: Lookup,
    *,
    dim: str | None = None,
    pattern: str | None = None,
    coordinate: str = "auto",
    duplicates: str = "error",
    skip_misfits: bool = False,
    coordinates: FileCoordinates | None = None,
    start: int = 0,
) -> Arrangement:
    """Stack files along a new dimension; ConflictError names the first that does not fit, and how it differs.

    `coordinate` is the source of the coordinate: names, by `pattern`; `datetime`; or the `order` of the files.
    `duplicates` decides about files with the same coordinate (`error`; the `last` wins; `keep` all). With
    `skip_misfits`, files that do not fit become rows with an error. `coordinates` is the result of `read_coordinates`
    if it is already known. `blocks` begin with entry `start`: the references of earlier entries are already stored.
    """
    if coordinates is None:
        coordinates = read_coordinates(entries, dim=dim, pattern=pattern, coordinate=coordinate)
    misfits = Misfits(entries, skip_misfits)
    plan = place_files(entries, refs, coordinates, misfits, duplicates=duplicates)
    arrays = [
        StackedArray(
            array=builder.array(coordinates.dim, len(plan.steps.values)),
            like=builder.like,
            files=plan.files(entries, series, builder),
            start=start,
            physical=builder.physical,
        )
        for series, builders in plan.builders.items()
        for builder in builders
    ]
    for stacked in arrays:
        if coordinates.dim in stacked.like.dims:
            raise ValueError(
                f"{stacked.array.name} already has a dimension {coordinates.dim!r}; choose another name with dim="
            )
    return assemble(
        arrays,
        refs,
        files=_files(entries, errors={**misfits.errors, **plan.steps.replaced}, times=_step_times(plan.steps)),
        record=_record(coordinates, plan, pattern),
        attributes=_common_attributes(entries, plan),
        coordinates={
            coordinates.dim: Coordinate(name=coordinates.dim, dims=(coordinates.dim,), values=plan.steps.values)
        },
        warnings=[*_physical_arrays(arrays), *(_warnings(entries, coordinates) if coordinate != "order" else ())],
        misfits=misfits.reasons,
    )


@dataclass(frozen=True, slots=True, eq=False)
class StackPlan:
    """The steps of a stack, and for each series its files and the arrays they make."""

    steps: StackSteps
    members: dict[str | None, list[int]]
    """Entries of each series."""
    builders: dict[str | None, list[StackBuilder]] = field(default_factory=dict)
    """The arrays of each series."""

    def files(self, entries: Sequence[FileEntry], series: str | None, builder: StackBuilder) -> list[StackedFile]:
        """The files of one array, in the order of their steps."""
        positions: dict[int, int] = {}
        found = []
        for i in sorted(self.members[series], key=self.steps.of.__getitem__):
            arrays = entries[i].arrays
            k = positions.get(id(arrays))
            if k is None:
                k = positions[id(arrays)] = next(k for k, a in enumerate(arrays) if a.name == builder.like.name)
            found.append(StackedFile(self.steps.of[i], i, k, builder.codes(arrays[k])))
        return found


def place_files(
    entries: Sequence[FileEntry], refs: Lookup, coordinates: FileCoordinates, misfits: Misfits, *, duplicates: str
) -> StackPlan:
    """Decide which files fit, the step of each, and the arrays they make; `refs` shows which files are sparse."""
    misfits.add_all(coordinates.misfits)
    _compare(entries, coordinates, misfits)
    while True:
        members = [i for i in coordinates.numbers if i not in misfits.reasons]
        steps = assign_steps(entries, coordinates, members, duplicates=duplicates)
        plan = StackPlan(steps, _by_series(entries, steps.of))
        for series, numbers in plan.members.items():
            plan.builders[series] = _builders(entries, series, numbers, len(steps.values))
        lost = _lost_missing_chunks(entries, plan, refs)
        misfits.add_all(lost)
        if not lost:
            return plan


def first_misfit(entries: Sequence[FileEntry], coordinates: FileCoordinates) -> str | None:
    """How the first file that does not fit differs from the first of its series; None if all fit."""
    try:
        _compare(entries, coordinates, Misfits(entries, skip=False))
    except ConflictError as error:
        return error.message
    return None


def _compare(entries: Sequence[FileEntry], coordinates: FileCoordinates, misfits: Misfits) -> None:
    """Compare each file with the first of its series, or with the most frequent structure if misfits are skipped."""
    for numbers in _by_series(entries, coordinates.numbers).values():
        candidates = reference_files(entries, numbers)
        first = candidates[0]
        if misfits.skip:
            usual = Counter(structure_key(entries[i].arrays) for i in candidates).most_common(1)[0][0]
            first = next(i for i in candidates if structure_key(entries[i].arrays) == usual)
        known: dict[int, str | None] = {id(entries[first].arrays): None}
        for i in numbers:
            arrays = entries[i].arrays
            if id(arrays) not in known:
                known[id(arrays)] = _stack_difference(arrays, entries[first].arrays)
            reason = known[id(arrays)]
            if reason is not None:
                ours, theirs = file_names(entries[i], entries[first])
                misfits.add(i, f"{ours} differs from {theirs}: {reason}")


def _stack_difference(ours: Sequence[Array], theirs: Sequence[Array]) -> str | None:
    """Why two files cannot be steps of the same arrays; None if they can."""
    found = difference(ours, theirs)
    if found is None:
        other = {array.name: array for array in theirs}
        conflicts = (packing_conflict(array, other[array.name]) for array in ours)
        found = next((conflict for conflict in conflicts if conflict is not None), None)
    return found


def _builders(
    entries: Sequence[FileEntry], series: str | None, numbers: Sequence[int], steps: int
) -> list[StackBuilder]:
    """The arrays of a series."""
    variants = list({id(entries[i].arrays): entries[i].arrays for i in numbers}.values())
    builders = []
    for array in variants[0]:
        same = [next(a for a in arrays if a.name == array.name) for arrays in variants]
        name = array_path(_group(series), array.name)
        builder = stack_builder(name, same, gaps=len(numbers) < steps)
        if builder.physical and physical_dtype(array.dtype) is None:
            raise ConflictError(
                f"{name} has no file at some of the {steps} steps and no nodata value to mark them, and no float type "
                f"holds every {array.dtype} exactly"
            )
        builders.append(builder)
    return builders


def _lost_missing_chunks(entries: Sequence[FileEntry], plan: StackPlan, refs: Lookup) -> dict[int, str]:
    """Files whose missing chunks mean 0 although a missing chunk of the stack is NaN."""
    found: dict[int, str] = {}
    for series, numbers in plan.members.items():
        physical = {builder.like.name for builder in plan.builders[series] if builder.physical}
        for i in numbers if physical else ():
            for k, array in enumerate(entries[i].arrays):
                if array.name not in physical or packing_of(array).nodata is not None:
                    continue
                if has_missing_chunks(array, refs(i, k)):
                    found[i] = (
                        f"{array.name} of {file_name(entries[i])} has missing chunks and no nodata value: they mean 0 "
                        "in the file and would be NaN in the stack"
                    )
    return found


def _common_attributes(entries: Sequence[FileEntry], plan: StackPlan) -> dict[str, dict[str, Any]]:
    """The attributes that the files of each series have in common, by group."""
    shared = {
        _group(series): common_attributes(entries[i].attributes for i in numbers)
        for series, numbers in plan.members.items()
    }
    return {group: attributes for group, attributes in shared.items() if attributes}


def _record(coordinates: FileCoordinates, plan: StackPlan, pattern: str | None) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": "stack", "dim": coordinates.dim, "coordinate": coordinates.origin}
    if groups := [_group(series) for series in plan.members if series is not None]:
        record["series"] = groups
    if coordinates.origin == "pattern" and pattern is not None:
        record["pattern"] = pattern
    return record


def _by_series(entries: Sequence[FileEntry], numbers: Iterable[int]) -> dict[str | None, list[int]]:
    groups: dict[str | None, list[int]] = {}
    for i in numbers:
        groups.setdefault(entries[i].series, []).append(i)
    return groups


def _group(series: str | None) -> str:
    """The group of the arrays of a series; the root is the empty string."""
    return "" if series is None else safe_path(series)


def _files(entries: Sequence[FileEntry], *, errors: Mapping[int, str], times: Mapping[int, np.datetime64]) -> Files:
    """The files table; with several series, also the group of each file."""
    files = files_table(entries, errors=errors, times=times)
    if all(entry.series is None for entry in entries):
        return files
    return replace(files, columns={"group": np.array([_group(entry.series) for entry in entries], object)})


def _step_times(steps: StackSteps) -> dict[int, np.datetime64]:
    """The time of each file, if the new dimension is time."""
    if steps.values.dtype.kind != "M":
        return {}
    return {i: steps.values[step] for i, step in steps.of.items()}


def _physical_arrays(arrays: Sequence[StackedArray]) -> list[str]:
    """A note for each array of full resolution whose values are converted to physical ones."""
    return [
        f"files differ in nodata, scale or offset, or lack a nodata value for steps without a file: "
        f"{stacked.array.name} has physical values, as {stacked.array.dtype} with NaN for nodata"
        for stacked in arrays
        if stacked.physical and stacked.array.level == 0
    ]


def _warnings(entries: Sequence[FileEntry], coordinates: FileCoordinates) -> tuple[str, ...]:
    if coordinates.origin != "order":
        return ()
    hint = suggest_pattern([entries[i].source.url for i in coordinates.numbers])
    more = f"; the names seem to contain times: pattern={hint!r}" if hint else ""
    return (f"files have no coordinate: {coordinates.dim} counts them in the order they were given{more}",)

"""Tamper with a stored index, flat or dataset: change its rows, its files table or its footer document."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from periplus.table.document.document import FILES_KEY, KEY

if TYPE_CHECKING:
    import pyarrow as pa

Change = Callable[["pa.Table"], "pa.Table"]


def tamper(
    index: Path,
    *,
    document: Callable[[dict[str, Any]], Any] | None = None,
    files: Change | None = None,
    rows: Change | None = None,
) -> Path:
    """Rewrite a local index in place. `document` changes the footer document, or returns another one."""
    import pyarrow.parquet as pq

    flat = index.is_file()
    main = index if flat else index / "files.parquet"
    keys = dict(pq.read_metadata(main).metadata)
    keys.pop(b"ARROW:schema", None)
    if document is not None:
        read = json.loads(keys[KEY])
        answer = document(read)
        keys[KEY] = answer if isinstance(answer, bytes) else json.dumps(read if answer is None else answer).encode()
    table = pq.read_table(main)
    if flat:
        table = table if rows is None else rows(table)
        if files is not None:
            inner = io.BytesIO()
            pq.write_table(files(pq.read_table(io.BytesIO(base64.b64decode(keys[FILES_KEY])))), inner)
            keys[FILES_KEY] = base64.b64encode(inner.getvalue())
    else:
        table = table if files is None else files(table)
        for part in (index / "chunks").iterdir() if rows is not None else ():
            pq.write_table(rows(pq.read_table(part)), part)  # type: ignore[misc]
    pq.write_table(table.replace_schema_metadata(keys), main)
    return index


def change_column(name: str, value: Callable[[list[Any]], list[Any]]) -> Change:
    """Change the values of one column; its type stays."""

    def change(table: pa.Table) -> pa.Table:
        import pyarrow as pa

        place, field = table.schema.get_field_index(name), table.schema.field(name)
        values = value(table.column(name).to_pylist())
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        made = pa.array(values, kind)
        if pa.types.is_dictionary(field.type):
            made = made.dictionary_encode().cast(field.type)
        return table.set_column(place, field, made)

    return change


def change_sources(index: Path, *paths: str) -> Path:
    """Replace the sources of the index, in the order of its files."""
    import pyarrow.parquet as pq

    if index.is_dir():
        return tamper(index, files=change_column("path", lambda _: list(paths)))
    known = pq.read_table(index).column("path").to_pylist()
    names = dict(zip(sorted(set(known), key=known.index), paths, strict=False))
    return tamper(
        index,
        files=change_column("path", lambda _: list(paths)),
        rows=change_column("path", lambda old: [names[path] for path in old]),
    )

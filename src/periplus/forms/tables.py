"""Our own forms: a flat Parquet file, a dataset folder and a DuckDB database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from periplus.errors import FormatError
from periplus.forms.form import FormResult, IndexForm, Opening, Writing
from periplus.policy import Policy
from periplus.table.stored_form import DUCKDB, FLAT, Content, is_dataset, is_duckdb, is_flat

if TYPE_CHECKING:
    from periplus.table import Table


def open_parquet(opening: Opening, *, document: Mapping[str, Any] | None = None) -> Table:
    """A flat index or a dataset; `document` replaces the footer document of a table that another tool wrote."""
    from periplus.table import open_table

    return open_table(
        opening.url, fetch=opening.fetch, limits=opening.limits, allow=opening.allow, document=document, form="parquet"
    )


def open_database(opening: Opening) -> Table:
    """A DuckDB index; it is opened only with `trust`."""
    from periplus.table import open_table

    if os.path.exists(opening.url) and not is_duckdb(Content(opening.url)):
        raise FormatError("this is no DuckDB file, although its name ends like one", url=opening.url)
    return open_table(
        opening.url,
        fetch=opening.fetch,
        limits=opening.limits,
        allow=opening.allow,
        trust=opening.trust,
        form="duckdb",
    )


def write_as(form: str, writing: Writing) -> FormResult:
    """Copy the rows into one of our own forms."""
    from periplus.table import copy_table

    anywhere = writing.fetch.under(Policy.everything())
    return FormResult(copy_table(writing.table, writing.url, fetch=anywhere, form=form), {})


FLAT_PARQUET = IndexForm(
    name="flat",
    description="a flat Parquet index",
    endings=FLAT,
    recognise=is_flat,
    open=open_parquet,
    write=partial(write_as, "flat"),
)
DATASET = IndexForm(
    name="dataset",
    description="a dataset folder",
    endings=(),
    recognise=is_dataset,
    open=open_parquet,
    write=partial(write_as, "dataset"),
)
DUCKDB_DATABASE = IndexForm(
    name="duckdb",
    description="a DuckDB index",
    endings=DUCKDB,
    recognise=is_duckdb,
    open=open_database,
    write=partial(write_as, "duckdb"),
)

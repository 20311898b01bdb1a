"""Forms of an index: recognise, open and write each of them, one entry per form."""

from periplus.forms.form import IndexForm, UnknownOptionError, WriteReport
from periplus.forms.registry import FORMS, NAMES, is_index, open_index, recognise, write_index

__all__ = [
    "FORMS",
    "NAMES",
    "IndexForm",
    "UnknownOptionError",
    "WriteReport",
    "is_index",
    "open_index",
    "recognise",
    "write_index",
]

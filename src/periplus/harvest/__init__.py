"""harvest: scan many URLs into a table; resumable, with bounded memory, and a row for each failure."""

from periplus.harvest.index import harvest, index_into
from periplus.harvest.inputs import Input, expand
from periplus.harvest.scanning.drive import Harvested
from periplus.harvest.summary import Summary

__all__ = ["Harvested", "Input", "Summary", "expand", "harvest", "index_into"]

"""harvest: many URLs through their scanners into a table; resumable, bounded in memory, every failure a row."""

from periplus.harvest.index import harvest, index_into
from periplus.harvest.inputs import Input, expand
from periplus.harvest.scanning.drive import Harvested
from periplus.harvest.summary import Summary

__all__ = ["Harvested", "Input", "Summary", "expand", "harvest", "index_into"]

"""periplus: index imagery and array archives where they lie. The array index is a table."""

from periplus.errors import PeriplusError

__all__ = ["PeriplusError"]
__version__ = "0.1.0"

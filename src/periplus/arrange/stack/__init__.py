"""stack: files of one grid become one array with a new leading dimension."""

from periplus.arrange.stack.stacking import stack

__all__ = ["stack"]

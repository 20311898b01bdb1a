"""References that a run has read: parts in memory, or in the journal of an unfinished run."""

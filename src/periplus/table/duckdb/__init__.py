"""DuckDB: SQL over an index, and the index as a database."""

"""Journal in a PostgreSQL database: its tables, the lease of its one writer, and its reads."""

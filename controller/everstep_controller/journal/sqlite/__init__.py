"""Journal in an SQLite file: its tables, their schema, their damage and their upkeep."""

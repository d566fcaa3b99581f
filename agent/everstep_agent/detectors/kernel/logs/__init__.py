"""Kernel logs as they are stored: the formats of files and of pstore, and what was in them."""

"""Concurrency: threads, tasks by generation, change signals, and long work on the event loop."""

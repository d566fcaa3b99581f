"""Tools of the event loop: threads, tasks by generation, signals of change, long work in slices."""

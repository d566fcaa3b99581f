"""Output of the ranks: on its way to the terminal and to files, and read for steps."""

"""What the ranks write: on its way to the terminal and to files, and read for steps."""

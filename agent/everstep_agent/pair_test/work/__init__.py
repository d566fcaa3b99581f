"""Fixed work of the pair test: runs in a child process, standard library and ctypes only."""

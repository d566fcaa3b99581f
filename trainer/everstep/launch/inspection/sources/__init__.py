"""Sources: what tells of a rank from outside of it, each read by a module of its own."""

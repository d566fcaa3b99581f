"""A rank's state back from wherever a good copy of it is: memory, peers, files."""

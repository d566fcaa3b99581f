"""The command line of ``everstep run``: torchrun's options and ours, checked at once."""

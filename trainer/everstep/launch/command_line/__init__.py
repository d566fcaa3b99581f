"""Command line of ``everstep run``: torchrun's options and Everstep's, checked at once."""

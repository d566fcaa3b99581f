"""Everstep's rendezvous for ``torchrun --rdzv-backend everstep``."""

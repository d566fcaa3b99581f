"""Fault tables of NVIDIA: error codes as data files, and what reads them."""

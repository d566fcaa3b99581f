"""Probes of NVIDIA GPUs, through a process that talks to the driver."""

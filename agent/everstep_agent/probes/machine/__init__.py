"""Probes of the machine: load, limits, clock, processes, disks, mounts and services."""

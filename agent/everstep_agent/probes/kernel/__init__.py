"""Probes of the kernel log, live and of crashes, and of files that it is relayed to."""

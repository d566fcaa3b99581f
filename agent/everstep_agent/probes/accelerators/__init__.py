"""Accelerator probes: devices of any vendor but NVIDIA, one file per tool that reads them."""

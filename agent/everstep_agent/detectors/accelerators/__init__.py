"""Accelerator detectors: judgements of devices of any vendor but NVIDIA."""

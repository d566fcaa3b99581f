"""GPU detectors: judgements of NVIDIA GPUs, their memory, clocks, links and processes."""

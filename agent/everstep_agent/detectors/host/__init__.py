"""Host detectors: judgements of memory, processors, clock, disks, processes and services."""

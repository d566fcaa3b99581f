"""GPU notes: remarks on a node's NVIDIA GPUs, on slices and on what the driver does not tell."""

from everstep_agent.detectors.gpus.reading import GpusReading


def gpu_notes(reading: GpusReading) -> list[str]:
    """Return the notes."""
    notes = [
        f"GPU {gpu.pci}: {len(gpu.mig_devices)} MIG devices"
        for gpu in reading.gpus
        if gpu.mig_enabled
    ]
    if reading.gpus and reading.no_events:
        notes.append(f"NVIDIA GPUs: the driver tells of no events: {reading.no_events}")
    return notes

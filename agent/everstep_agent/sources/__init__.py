"""What the watch looks at: each file wires one probe to its detectors."""

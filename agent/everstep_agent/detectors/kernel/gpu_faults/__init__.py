"""GPU faults in the kernel log: Xids and SXids, what each code means, and what clears it."""

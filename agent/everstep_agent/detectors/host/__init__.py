"""What is judged of the host: memory, processors, clock, disks, processes, services."""

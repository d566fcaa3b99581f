"""The storage worker: a process with the job's rights that reads and writes its files."""

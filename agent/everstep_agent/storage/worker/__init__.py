"""Storage worker: a process with the rights of a job's user that reads and writes its files."""

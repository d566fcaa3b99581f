"""Storage backends: a folder, or a bucket of an object store, that holds a job's steps."""

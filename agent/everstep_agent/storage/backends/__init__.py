"""Where a job's steps are stored: a folder, or a bucket of an object store."""

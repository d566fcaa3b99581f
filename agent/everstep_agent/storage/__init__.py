"""Storage: brings a job's steps to files or objects that outlive its nodes, and back."""

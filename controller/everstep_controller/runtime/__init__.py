"""Runtime: the shell around the core, which journals, keeps time, and acts."""

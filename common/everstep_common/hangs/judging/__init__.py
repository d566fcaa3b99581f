"""Who holds a job back, by the reports of its ranks. Pure."""

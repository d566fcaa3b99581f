"""Reports of ranks, and verdicts on them: the values that readers and judges of hangs share."""

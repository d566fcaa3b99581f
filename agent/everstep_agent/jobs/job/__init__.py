"""One job on a node: what acts for it, and what of it runs."""

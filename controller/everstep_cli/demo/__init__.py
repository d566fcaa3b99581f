"""Demo: a whole cluster on this machine, three faults, and a proof of every claim."""

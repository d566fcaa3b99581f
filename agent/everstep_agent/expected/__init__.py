"""Expected inventory: written from what a node has now, and compared with what it has later."""

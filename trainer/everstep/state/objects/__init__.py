"""Objects of a state: models, optimizers, random states, and the names of what is in them."""

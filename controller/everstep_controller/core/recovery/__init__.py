"""Recovery: from a fault to the next generation."""

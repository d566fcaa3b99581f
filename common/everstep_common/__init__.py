"""What the parts share; standard library only, as it is imported inside training processes."""

"""Hangs at their source: what makes a rank readable, and the program that reads one that hangs."""

"""Inspection at the launcher: what makes a rank readable, and the program that reads it."""

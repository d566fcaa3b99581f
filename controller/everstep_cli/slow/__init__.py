"""Command ``everstep slow``: reads a table of seconds, prints who makes the others wait."""

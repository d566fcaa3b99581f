"""Report: one page of HTML that prints, made from what the controller answers."""

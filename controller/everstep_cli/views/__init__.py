"""How answers look on a terminal: messages in, rich tables out."""

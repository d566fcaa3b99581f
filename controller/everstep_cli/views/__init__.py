"""Views: answers of the controller as rich tables for a terminal."""

"""Assembly of a controller, a module for each subject, each made from those before it."""

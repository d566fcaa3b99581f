"""Trust between processes of one machine, where no certificates say who is who."""

"""Common code of all components: standard library only, as training processes import it."""

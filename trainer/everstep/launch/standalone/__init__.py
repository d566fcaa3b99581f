"""``everstep run --standalone``: a controller and an agent of the launcher's own."""

"""Sources: each file connects one probe to its detectors, for the loop that reads them."""

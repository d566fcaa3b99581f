"""Node inventory: the hardware and software of this node, as its agent reports them."""

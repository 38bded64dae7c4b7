"""From beliefs to flags: expected costs, caps, the random slice, and the reasons that are printed."""

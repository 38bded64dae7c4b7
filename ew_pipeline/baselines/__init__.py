"""What a retailer could do instead, and the published methods, behind the same interface as the detector."""

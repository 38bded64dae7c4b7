"""What a retailer could do instead, behind the same interface as the detector."""

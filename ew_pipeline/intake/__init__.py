"""From the retailer's tables to one panel of weekly sales: read, check, keep, assemble."""

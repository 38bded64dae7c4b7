"""What the published flags and other policies would have cost: labels, policies, measures, pages."""

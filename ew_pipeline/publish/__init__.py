"""Publication: the ledger that is the source of truth, the check lists and the weekly report."""

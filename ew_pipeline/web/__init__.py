"""`ew serve`: pages over the home and the ledger, for people who type no commands. Reads, never writes."""

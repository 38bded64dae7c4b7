"""After publication: drift, store checks, explanations, audit and replay."""

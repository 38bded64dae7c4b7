"""What every room needs: errors, weeks, settings, the schema of the tables, provenance, files, arrays."""

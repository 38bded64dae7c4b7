"""From the retailer's tables to one matrix of weekly sales: read, check, keep, assemble.

``sources``        files, folders, databases; ``source_passwords`` keeps passwords out of what is stored
``tables``         a source as typed tables
``contract``       what is checked, where faulty rows go; ``expectations`` does it with Great Expectations
``read``           all of it for a week; ``checked_tables`` and ``snapshot`` keep what is valid
``ranging``        which pairs are observed: the rule for missing rows
``assemble``       a snapshot (``coded_snapshot``) as matrices by ``segments``, with costs (``costs_table``)
                   and baselines: ``history`` of a ``panel``, the sales of many weeks next to each other
"""

"""Public sales data as our long table: ``store_id``, ``sku_id``, ``week`` (the date it starts), ``units``, …

The files are not part of this project. The user downloads them from their publishers under their terms and
passes the path; ``datasets`` says where they come from, `ew convert` writes the table. Every function returns
a pandas frame that can be written to parquet and given to ``ew run --sales`` or ``ew evaluate --sales``.
"""

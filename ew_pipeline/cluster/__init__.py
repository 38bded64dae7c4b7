"""Beyond one machine: weeks, segments and row blocks on the workers of a Dask cluster.

The method and the weekly run know nothing of this: it is handed to them. Dask is imported only where a
scheduler is named (``EW_DASK_ADDRESS`` or ``--dask``).
"""

"""Beyond one machine: weeks, segments and row blocks on the workers of a Dask cluster.

The algorithm knows nothing of this. Nothing here is imported unless a scheduler is named
(``EW_DASK_ADDRESS`` or ``--dask``).
"""

"""Sales data: the matrix type, and generators of data whose truth is known."""

from ew_pipeline.data.sales_matrix import SalesMatrix

__all__ = ["SalesMatrix"]

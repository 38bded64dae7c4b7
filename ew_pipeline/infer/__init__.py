"""What weeks of sales and the shelf checks say of each record and of the anomaly parameters."""

"""What the weeks and the shelf checks say of the anomaly parameters."""

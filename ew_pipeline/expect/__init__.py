"""What each pair should have sold in the newest week: the entrywise method on its segments."""

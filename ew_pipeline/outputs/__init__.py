"""What a published week gives people: check lists, score files and the weekly report."""

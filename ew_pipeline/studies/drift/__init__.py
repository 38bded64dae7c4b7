"""How the drift chart was measured: weeks of a chain in which one thing changes, fitted for real."""

"""`ew bench`: our steps beside other libraries', on the same data, in the same run."""

"""Judge an implementation against a reference by the statistics of its rounding errors."""

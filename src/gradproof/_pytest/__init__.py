"""What the pytest plugin consists of: options of a test, its seed, and annotations for continuous integration."""

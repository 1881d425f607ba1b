"""The parts of the pytest plugin: options of a test, its seed, and annotations for continuous integration."""

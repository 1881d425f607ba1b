"""Render reports: terminal, HTML and JSON. The modules read reports, and know no tensors."""

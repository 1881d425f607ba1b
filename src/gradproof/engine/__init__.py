"""Framework-free judgement of derivatives: slopes with bars, probes, localisation, verdicts."""

"""What each framework supplies: a subject for the engine. Imported only when used."""

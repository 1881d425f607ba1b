"""Estimators: numbers measured on a function, each with an error bar, to hold a claimed derivative against."""

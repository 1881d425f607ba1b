"""From a subject to a judgement: which derivatives are checked, and which part of a wrong function is wrong."""

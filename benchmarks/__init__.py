"""Tables side by side with torch's own checks, each from one run; README.md lists them."""

"""Tables side by side with torch's own checks, each from one run. `make bench` prints them all."""

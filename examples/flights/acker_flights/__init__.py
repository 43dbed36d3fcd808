"""The demo: every flight that left New York in 2013, accounted for."""

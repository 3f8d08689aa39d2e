"""The functions that Chaos Toolkit calls: actions, probes, controls and tolerances."""

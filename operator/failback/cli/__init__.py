"""The one command ``failback``: thin groups over the packages' public functions."""

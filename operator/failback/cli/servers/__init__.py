"""Commands that serve until they are stopped: exporter, collect, dashboard, operator and others."""

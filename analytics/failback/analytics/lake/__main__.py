"""The spelling ``python -m failback.analytics.lake`` of the lake's command."""

from failback.analytics.jobs.lake import main

if __name__ == "__main__":
    raise SystemExit(main())

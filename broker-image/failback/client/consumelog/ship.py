"""The spelling ``python -m failback.client.consumelog.ship`` of the shipper's command."""

from failback.client.consumelog.upload.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())

"""What spark-submit is given: the command `failback`, as it is in the packed environment."""

from failback.cli.__main__ import main

raise SystemExit(main())

"""``failback dashboard``: clusters, offsets, runs and experiments on one page, for people on duty.

One process, one poller, many readers: :mod:`poller` asks runtimes, brokers and run folders once a
second and publishes what changed; pages and the JSON API only read what it saw last. What is shown
of a run comes from its report, through the same figure functions as ``report.html``.
"""

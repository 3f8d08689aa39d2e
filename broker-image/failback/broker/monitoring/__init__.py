"""What a broker tells of itself: statistics, metrics, runtime information, health.

Nothing here changes what a broker does.
"""

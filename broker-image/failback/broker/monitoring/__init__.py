"""What a broker reports of itself: statistics, metrics, runtime information, health.

Nothing here changes what a broker does.
"""

"""What the collector and the dashboard share as web servers: tokens, refusals, OpenAPI, serving.

Routes and pages of either are its own.
"""

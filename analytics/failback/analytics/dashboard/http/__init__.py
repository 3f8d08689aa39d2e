"""The dashboard's routes, pages, access control and OpenAPI documents.

What a page shows is made in ``views``.
"""

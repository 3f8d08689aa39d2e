"""The dashboard's routes, pages, access and documents."""

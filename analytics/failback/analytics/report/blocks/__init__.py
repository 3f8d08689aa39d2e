"""The blocks of ``report.json`` as structs: fields, types, and what each means.

``tools/report_schemas.py`` makes ``report.schema.json`` of them, and from that the reference of the
documents is made. Reports themselves are plain dictionaries, checked against the schema.
"""

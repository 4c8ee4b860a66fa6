"""The SQL of the project: one file a view, audit, check or metric.

`queries.files` reads them. Nothing here depends on the rest of the project.
"""

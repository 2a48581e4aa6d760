"""The reports of runs, evaluations, pipelines, searches and events: `bigtrk report` and others.

Each is a document (`document.py`), which `show` prints and `write_page` writes as a page.
"""

"""Reports: documents (document.py) that `show` prints and `write_page` writes as pages."""

"""Reports: makes documents (document.py), which `show` prints and `write_page` writes as pages."""

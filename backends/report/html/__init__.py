"""Reports as one page of HTML: no network, no framework, a single file.

Builders (one idea a file) turn nouns into plain facts; the templates turn facts into the page. What
moves on it (a machine, a Gantt chart) is drawn by the page's own script from one block of JSON.
"""

"""The interactive explorer: a recorded run as a page in which one slider moves the whole engine.

`pack` turns a trace into a payload, `web/` holds the drawing code that reads it, `page` puts both
into one file and `shell` into the output of a notebook cell. Nothing here needs a kernel afterwards.
"""

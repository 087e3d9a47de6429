"""How the documentation site is built: `sphinx-build -W --keep-going -n -c docs . docs/_build/site`.

The source folder is the whole checkout, so that a link from a page to a notebook, or to a file of the code, is the same
relative path on the site, on GitHub and on disk. Nothing is fetched, and no notebook is run: the site shows what is
committed, and the tests run the notebooks.
"""

from nanoinfer import __version__

project = "nanoinfer"
author = "the nanoinfer authors"
copyright = author  # the name is Sphinx's
release = version = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "docs/index"
include_patterns = ["docs/**", "notebooks/*.ipynb"]
exclude_patterns = ["docs/_build", ".*", "nanoinfer", "tests", "**/.ipynb_checkpoints"]

# ---- pages and notebooks ------------------------------------------------------------------

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3  # links to headings, by the names that GitHub gives them
nb_execution_mode = "off"
nb_merge_streams = True

# ---- API reference ------------------------------------------------------------------------

add_module_names = False
default_role = "code"  # our docstrings put code between single backticks
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# References into other projects would need their inventories from the network; only our own names are checked.
nitpick_ignore_regex = [(r"py:.*", r"(?!nanoinfer\.).*")]

# ---- looks --------------------------------------------------------------------------------

html_theme = "furo"
html_title = "nanoinfer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["theme.js"]
html_extra_path = ["_extra"]  # index.html, which leads to docs/index.html
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

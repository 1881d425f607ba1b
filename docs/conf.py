"""How the documents are built: Sphinx, with furo's theme, from Markdown."""

project = "gradproof"
author = "the gradproof authors"
copyright = author  # noqa: A001  # Sphinx asks for it by this name
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_type_aliases = {  # the text names the values
    "Contracts": "str | Sequence[str] | None",
    "Modes": "str | Sequence[str] | None",
    "Order": "int",
    "Coverage": "str",
    "ContractNames": "Sequence[str]",
}
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
autodoc_default_options = {"exclude-members": "__new__, extra_repr"}  # Python's own
napoleon_google_docstring = True
html_theme = "furo"
html_title = "gradproof"
html_static_path = ["_static"]
html_js_files = ["copy.js"]
html_css_files = ["copy.css"]
nitpicky = False

"""How the site is built: `make docs`. Everything a page needs is in its folder; nothing is loaded from elsewhere."""

import os
import sys
from pathlib import Path

from fedade import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ["COLUMNS"] = "100"  # of what commands print in tutorials

project = "fedade"
author = "The fedade developers"
copyright = author  # noqa: A001 - Sphinx's name
release = __version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode", "myst_nb", "reference_directives", "mathml"]
exclude_patterns = ["_ext", "_static"]
default_role = "code"  # docstrings have Markdown's backticks

html_theme = "furo"
html_title = "fedade"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 4

nb_execution_mode = "force"
nb_execution_timeout = 600  # seconds for a cell, on a machine that is busy
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # they would come from another host

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False

# Types of other projects, and of ours that are not public: named in signatures, described elsewhere.
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|numpy|pydantic|pyarrow|collections|typing|pathlib|np|pa|nn|abc|jaxtyping|matplotlib)(\..*)?"),
    (r"py:.*", r"(Tensor|NDArray|ndarray|Path|Callable|Sequence|Mapping|Any|ABC|Generic|Literal|Protocol)"),
    (r"py:.*", r"fedade\.(core|maths|scenarios|reporting|products|adapter|parts)\..*"),
]

"""Hook of mkdocs: the site has Doxygen's pages of the C++ headers; reference/cpp.md links them.

Where Doxygen is not installed, the page stays a list.
"""

import atexit
import logging
import pathlib
import re
import shutil
import subprocess
import tempfile
from xml.etree import ElementTree

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOG = logging.getLogger("mkdocs.plugins.cpp_reference")

_page_of_header = {}


def on_files(files, config):
    _page_of_header.clear()
    doxygen = shutil.which("doxygen")
    if doxygen is None:
        LOG.info("without Doxygen the site has no pages of the C++ headers")
        return files
    # mkdocs copies the pages at the end of the build.
    output = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, output, ignore_errors=True)
    tags = output / "cpp.tag"
    run = subprocess.run(
        [doxygen, "-"], cwd=ROOT, capture_output=True, text=True, check=False,
        input=f"@INCLUDE = docs/Doxyfile\nOUTPUT_DIRECTORY = {output}\nGENERATE_TAGFILE = {tags}\n")
    if run.returncode != 0:
        LOG.warning("doxygen docs/Doxyfile: %s", run.stderr)
        return files
    for path in sorted((output / "cpp").rglob("*")):
        if path.is_file():
            page = path.relative_to(output).as_posix()
            files.append(File.generated(config, page, abs_src_path=str(path)))
    for compound in ElementTree.parse(tags).iterfind("compound[@kind='file']"):
        header = pathlib.Path(compound.findtext("path"), compound.findtext("name"))
        _page_of_header[header.relative_to(ROOT).as_posix()] = compound.findtext("filename")
    return files


def on_page_markdown(markdown, page, **_):
    if page.file.src_uri != "reference/cpp.md":
        return markdown

    def link(match):
        target = _page_of_header.get(match[1])
        return f"- [`{match[1]}`](../cpp/{target})" if target else match[0]

    return re.sub(r"^- `([^`]+\.hpp)`", link, markdown, flags=re.MULTILINE)

"""The reference of the C++ headers: Doxygen reads it without a warning, and its page names all.

cpp_reference.py ROOT
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOLDERS = ("bluefog_cpp", "topology", "ops", "optimizers", "nn", "pipeline")
SKIPPED = 77


def public_headers(root):
    return sorted(path.relative_to(root).as_posix()
                  for folder in FOLDERS for path in (root / folder).glob("*.hpp"))


def problems_of_page(root, headers):
    """docs/reference/cpp.md has a line of each public header, and of nothing else."""
    page = "docs/reference/cpp.md"
    listed = re.findall(r"^- `([^`]+\.hpp)`: \S", (root / page).read_text(), re.MULTILINE)
    for header in headers:
        if listed.count(header) != 1:
            yield f"{page}: expected one line of {header}, found {listed.count(header)}"
    for header in sorted(set(listed) - set(headers)):
        yield f"{page}: {header} is no public header"


def problems_of_doxygen(root, doxygen, headers):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [doxygen, "-"], cwd=root, capture_output=True, text=True, check=False,
            input=f"@INCLUDE = docs/Doxyfile\nOUTPUT_DIRECTORY = {folder}\n"
                  f"GENERATE_TAGFILE = {folder}/cpp.tag\n")
        if run.returncode != 0 or run.stderr:
            yield f"doxygen docs/Doxyfile: exit code {run.returncode}\n{run.stderr}"
            return
        shown = (pathlib.Path(folder) / "cpp/files.html").read_text()
        for header in headers:
            if f">{pathlib.Path(header).name}<" not in shown:
                yield f"doxygen docs/Doxyfile: no page of {header}"


def main(root):
    headers = public_headers(root)
    doxygen = shutil.which("doxygen")
    problems = list(problems_of_page(root, headers))
    if doxygen:
        problems += problems_of_doxygen(root, doxygen, headers)
    if problems:
        print("\n".join(problems))
        return 1
    if not doxygen:
        print("SKIPPED: doxygen is not installed")
        return SKIPPED
    print(f"{len(headers)} public headers, no warning")
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))

"""Prints each requirement of the given files that this Python lacks, one a line.

Looks at what is installed rather than at a note about it, so that a broken or
foreign environment is seen for what it is. Names in --without are left out.
"""

import argparse
import importlib.metadata
import pathlib

from pip._vendor.packaging.requirements import Requirement


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requirements", type=pathlib.Path, nargs="+")
    parser.add_argument("--without", nargs="*", default=[])
    return parser.parse_args()


def installed_version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def main():
    args = parse_arguments()
    for line in (line for path in args.requirements for line in path.read_text().splitlines()):
        if not line or line.startswith("#"):
            continue
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate():
            continue
        version = installed_version(requirement.name)
        if requirement.name in args.without or (version and version in requirement.specifier):
            continue
        print(f"{requirement.name}{requirement.specifier}")


if __name__ == "__main__":
    main()

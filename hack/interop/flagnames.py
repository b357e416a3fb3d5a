"""Lists the flags of the released parsers, one a line: its names and what it takes.

usage: flagnames.py FOLDER

Writes vllm.txt and sglang.txt there. "no-" names of switches are left out: whatever
is a toggle has one.
"""

import argparse
import importlib.metadata
import pathlib
import sys

from compare import serve_parser
from compare_sglang import ServerArgs


def takes(action):
    if isinstance(action, argparse.BooleanOptionalAction):
        return "toggle"
    if action.nargs == 0:
        return "mark"
    return "many" if action.nargs in ("+", "*") else "one"


def lines(parser):
    for action in parser._actions:
        names = [n for n in action.option_strings if not (n.startswith("--no-") and takes(action) == "toggle")]
        if names and names[0] != "-h":
            yield " ".join(sorted(names, key=lambda n: (not n.startswith("--"), action.option_strings.index(n))) + [takes(action)])


def write(file, package, parser):
    head = f"# {package} {importlib.metadata.version(package)}, by hack/interop/flagnames.py\n"
    file.write_text(head + "".join(f"{line}\n" for line in sorted(set(lines(parser)))))


def main(folder):
    folder = pathlib.Path(folder)
    _, serve = serve_parser()
    write(folder / "vllm.txt", "vllm", serve)
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    write(folder / "sglang.txt", "sglang", parser)


if __name__ == "__main__":
    main(sys.argv[1])

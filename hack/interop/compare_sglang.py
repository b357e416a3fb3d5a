"""Holds PDPool's knowledge of SGLang's arguments against SGLang's own parser.

usage: compare_sglang.py FILE

FILE is that of compare.py. SGLang's parser comes with its kernels' compiler and a
notebook, none of which it needs to parse: they are replaced by nothing.
"""

import argparse
import json
import pathlib
import sys
import unittest.mock

for module in ("triton", "triton.language", "triton.runtime", "triton.runtime.jit", "triton.compiler", "triton.compiler.compiler",
               "triton.backends", "triton.tools", "IPython", "IPython.display"):
    sys.modules[module] = unittest.mock.MagicMock()

from sglang.srt.server_args import ServerArgs  # noqa: E402


def takes(action):
    if isinstance(action, argparse.BooleanOptionalAction):
        return "toggle"
    return "mark" if action.nargs == 0 else "one"


def compare(parser, data):
    known = {name: action for action in parser._actions for name in action.option_strings}
    for flag in data["flags"]:
        for name in flag["names"]:
            if name not in known:
                yield f"{name}: SGLang has no such flag"
            elif takes(known[name]) != {"object": "one"}.get(flag["takes"], flag["takes"]):
                yield f"{name}: SGLang's takes {takes(known[name])}, ours {flag['takes']}"
    for line in data["lines"]:
        try:
            args = parser.parse_args(line["args"])
        except SystemExit as error:
            yield f"{line['name']}: {error!r} on {line['args']}"
            continue
        for name, want in line["want"].items():
            if getattr(args, name) != want:
                yield f"{line['name']}: {name} is {getattr(args, name)!r}, not {want!r}"


def main(file):
    data = json.loads(pathlib.Path(file).read_text())["sglang"]
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    differences = list(compare(parser, data))
    for difference in differences:
        print(difference)
    print(f"SGLang: {len(data['flags'])} flags, {len(data['lines'])} commands; differences: {len(differences)}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

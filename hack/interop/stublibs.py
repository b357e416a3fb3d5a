"""Stands in for the GPU libraries that a CUDA build of torch is linked with.

usage: stublibs.py SITE_PACKAGES DIRECTORY

Only the argument parser and the configuration classes of vLLM are run, on the
CPU, and the loader has to be content. For every library that torch's own ones
need and that is not there, DIRECTORY gets one with the symbols (and their
versions) that they ask of it; each answers 100, "no device".
"""

import collections
import pathlib
import re
import subprocess
import sys

NEEDED = re.compile(r"\(NEEDED\).*\[(.*)\]")
GPU = re.compile(r"lib(cu|nccl|nv)")


def readelf(*args):
    return subprocess.run(["readelf", "-W", *args], capture_output=True, text=True, check=True).stdout.splitlines()


def wanted(libraries):
    """The needed libraries; symbols by version; symbols without a version."""
    needed, versioned, bare, defined = set(), collections.defaultdict(set), set(), set()
    for library in libraries:
        needed.update(m[1] for line in readelf("-d", library) if (m := NEEDED.search(line)))
        for line in readelf("--dyn-syms", library):
            columns = line.split()
            if len(columns) < 8 or not columns[0].rstrip(":").isdigit():
                continue
            name, _, version = columns[7].partition("@")
            if columns[6] != "UND":
                defined.add(name)
            elif version:
                versioned[version.lstrip("@").strip("()")].add(name)
            else:
                bare.add(name)
    return needed, versioned, bare - defined


def build(library, versions, bare, directory):
    """Compiles the stand-in for one library."""
    source, script = directory / (library + ".c"), directory / (library + ".map")
    symbols = sorted(set().union(bare, *versions.values()))
    source.write_text("".join(f"int {s}(void) {{ return 100; }}\n" for s in symbols))
    nodes = [f"{v} {{ global: {'; '.join(sorted(names))}; }};\n" for v, names in versions.items()]
    script.write_text("".join(nodes) or "{ global: *; };\n")
    command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", str(directory / library), str(source), f"-Wl,-soname,{library}"]
    if nodes:
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)
    source.unlink()
    script.unlink()


def main(packages, directory):
    packages, directory = pathlib.Path(packages), pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    present = {p.name for p in packages.glob("nvidia/**/*.so*")}
    libraries = [p for p in sorted((packages / "torch/lib").glob("*.so*")) if "caffe2_nvrtc" not in p.name]
    needed, versioned, bare = wanted(libraries)
    for library in sorted(n for n in needed if GPU.match(n) and n not in present):
        family = re.sub(r"^lib|\.so.*$", "", library).lower()[:6]
        versions = {v: s for v, s in versioned.items() if v == library or v.lower().startswith(family)}
        build(library, versions, {s for s in bare if s.lower().startswith(family)}, directory)


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Who may include whom: reads tools/include_rules and every #include of src/ and apps/.

Beyond the table: a .h includes no CUDA header outside device/cuda; a .cuh is included only from its own folder,
ops/ptx or device/cuda; folders form no cycle (the table itself is checked for that).
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def read_rules():
    rules = {}
    for line in (ROOT / "tools/include_rules").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            folder, _, allowed = line.partition(":")
            rules[folder.strip()] = allowed.split()
    return rules


def cycle_in(rules):
    done, path = set(), []

    def visit(folder):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return None
        path.append(folder)
        for entry in rules.get(folder, []):
            if "/" not in entry and (found := visit(entry)):
                return found
        path.pop()
        done.add(folder)
        return None

    return next((found for folder in rules if (found := visit(folder))), None)


def sources():
    for top in ("src", "apps"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh"):
                yield path


def faults_of(path, rules):
    relative = path.relative_to(ROOT)
    folder = relative.parts[1] if relative.parts[0] == "src" else "apps"
    is_test = re.search(r"_(test|bench|fuzz)\.cc$", path.name) or "testing" in relative.parts
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(2)
        where = f"{relative}:{number}: "
        if path.suffix == ".h" and re.match(r"cuda|cub/|cooperative_groups|mma\.h", target):
            if not str(relative).startswith("src/device/cuda"):
                yield where + f"a header includes the CUDA header {target}"
        if target.endswith(".cuh") and match.group(1) == '"':
            if str(relative.parent) != "src/" + str(pathlib.Path(target).parent) and not target.startswith(("ops/ptx/", "device/cuda/")):
                yield where + f"{target} is another folder's kernel"
        other = target.split("/")[0]
        if match.group(1) != '"' or other not in rules or other == folder or is_test:
            continue
        if other not in rules.get(folder, []) and target not in rules.get(folder, []):
            yield where + f"{folder} may not include {target} (tools/include_rules)"


def main():
    rules = read_rules()
    faults = [fault for path in sources() for fault in faults_of(path, rules)]
    if found := cycle_in(rules):
        faults.append("tools/include_rules has a cycle: " + " -> ".join(found))
    unknown = {p.name for p in (ROOT / "src").iterdir() if p.is_dir()} - set(rules)
    faults += [f"src/{name} has no line in tools/include_rules" for name in sorted(unknown)]
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

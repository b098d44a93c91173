"""Structs that may grow: in the new record each must begin with exactly what it was in the old one.

    grown.py OLD.abi NEW.abi    prints what is wrong, and what was added; exit status 1 if something is wrong

Fields are compared by name, offset and type, the type down to its last part.
"""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

GROWABLE = re.compile(re.search(r"name_regexp = (.*)", (Path(__file__).parent / "grown.suppr").read_text())[1])
SAME_EVERYWHERE = {"id", "filepath", "line", "column", "visibility", "is-declaration-only", "naming-typedef-id"}


class Abi:
    def __init__(self, path):
        self.by_id = {e.get("id"): e for e in ET.parse(path).iter() if e.get("id")}
        self.structs = {
            e.get("name"): e for e in self.by_id.values() if e.tag == "class-decl" and e.find("data-member") is not None
        }

    def spell(self, element, seen=()):
        """An element and all that it refers to, as text that is equal for equal types."""
        if element.get("id") in seen:
            return "..."
        seen = (*seen, element.get("id"))
        own = sorted(f"{k}={v}" for k, v in element.attrib.items() if k not in SAME_EVERYWHERE and k != "type-id")
        parts = [self.spell(child, seen) for child in element]
        if element.get("type-id"):
            parts.append(self.spell(self.by_id[element.get("type-id")], seen))
        return f"{element.tag}({' '.join(own)} {' '.join(parts)})"

    def fields(self, struct):
        return [
            (
                m.find("var-decl").get("name"),
                m.get("layout-offset-in-bits"),
                self.spell(m.find("var-decl"), (struct.get("id"),)),
            )
            for m in struct.findall("data-member")
        ]


def main(old_path, new_path):
    old, new = Abi(old_path), Abi(new_path)
    wrong = False
    for name in sorted(filter(GROWABLE.match, old.structs)):
        before = old.fields(old.structs[name])
        after = new.fields(new.structs[name]) if name in new.structs else []
        for i, field in enumerate(before):
            if after[i : i + 1] != [field]:
                print(f"{name}.{field[0]} is not what and where it was")
                wrong = True
                break
        else:
            for field in after[len(before) :]:
                print(f"added: field {field[0]} of {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

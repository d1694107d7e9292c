"""The part of a document that a benchmark writes: what is between two marks. The prose around it is by hand."""
import re


def put(path, name, text):
    """Puts `text` between the marks of the script `name` in the document."""
    begin, end = f"<!-- {name} writes from here -->", "<!-- to here -->"
    old = path.read_text()
    new, found = re.subn(rf"(?s){re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", old)
    if found != 1:
        raise SystemExit(f"{path} has {found} places for {name}: {begin} … {end}")
    path.write_text(new)

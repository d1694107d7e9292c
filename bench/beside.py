"""Tables that compare tools: marks the best cells, lists the rows where Flightline is behind, and fills a block of a document."""
import re, statistics
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Cell:
    """The text of a table cell, and the value for comparison; `low` and `high` are the range of repeated runs."""
    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None

    def spread(self):
        return (self.low if self.low is not None else self.value, self.high if self.high is not None else self.value)


def middle(values, form="{:.1f}", unit=""):
    """Returns a cell with median and range."""
    if not values:
        return Cell("–")
    values = sorted(values)
    median = statistics.median(values)
    text = form.format(median) + unit
    if len(values) > 1:
        text += f" ({form.format(values[0])}..{form.format(values[-1])})"
    return Cell(text, median, values[0], values[-1])


@dataclass
class Row:
    """One measure of every tool. `better` is "less" or "more"; values that differ by at most `same` are equal."""
    name: str
    better: str
    cells: dict
    same: float = 0

    def best(self):
        known = [c.value for c in self.cells.values() if c.value is not None]
        return (min if self.better == "less" else max)(known) if known and self.better else None

    def level(self, cell):
        """Returns true if the cell is the best, or its range overlaps that of the best."""
        best = self.best()
        if best is None or cell.value is None:
            return False
        low, high = cell.spread()
        if self.better == "less":
            return low <= self.reach(best) + self.same
        return high >= self.reach(best) - self.same

    def reach(self, best):
        """Returns the end of the best cell's range that is nearest to the other cells."""
        at = next(c for c in self.cells.values() if c.value == best)
        return at.spread()[1 if self.better == "less" else 0]


@dataclass
class Table:
    tools: list
    rows: list = field(default_factory=list)

    def add(self, name, better, cells, same=0):
        self.rows.append(Row(name, better, cells, same))

    def markdown(self):
        lines = ["| | " + " | ".join(self.tools) + " |", "|---|" + "---|" * len(self.tools)]
        for row in self.rows:
            cells = []
            for tool in self.tools:
                cell = row.cells.get(tool, Cell("–"))
                cells.append(f"**{cell.text}**" if row.level(cell) else cell.text)
            lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def behind(self, ours):
        """Returns the rows in which none of `ours` is best or level with the best."""
        found = []
        for row in self.rows:
            if row.best() is None or any(row.level(row.cells[tool]) for tool in ours if tool in row.cells):
                continue
            first = next((t for t, c in row.cells.items() if c.value == row.best()), "?")
            mine = next((row.cells[tool].text for tool in ours if tool in row.cells), "–")
            found.append(f"* {row.name}: {mine}; {first}: {row.cells[first].text}")
        return found

    def plain(self):
        return {row.name: {tool: cell.text for tool, cell in row.cells.items()} for row in self.rows}


def fill(document, block, text):
    """Replaces the text between the markers of `block` in a document. The markers must exist."""
    path = Path(document)
    begin, end = f"<!-- begin {block} -->", f"<!-- end {block} -->"
    old = path.read_text()
    if begin not in old or end not in old:
        raise SystemExit(f"{path} has no marks of {block}")
    marked = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.S)
    path.write_text(marked.sub(lambda _: f"{begin}\n{text}\n{end}", old))

"""Builds the documentation site in build/site: `python docs/build_site.py`, with the extra `docs` installed.

The pages are written to be read on GitHub as well, so they link to files of the repository. The site generator reads a
single folder: this script first collects README.md, the pages and notebooks of docs/ and all files they link to in
build/pages, with the links adapted. Notebooks become Markdown, with the outputs that are stored in them. Source files
become pages with numbered lines. A link whose text is `module.name` gets the line of that function or class:
[`decoder.CopyNetDecoder.step`](../copynet_hf/model/decoder.py). Dead links stop the build.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = "build/pages"  # `docs_dir` in mkdocs.yml
_MARKUP = re.compile(
    r"(?P<fence>^```.*?^```$)|(?P<link>\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\))|(?P<code>`(?:[^`\n]|\n(?!\n))*`)",
    re.MULTILINE | re.DOTALL,
)
_SOURCE_PAGE = """---
hide: [toc]
search: {{exclude: true}}
---

# {path}

````python linenums="1"
{source}````
"""
_QUALIFIED_NAME = re.compile(r"`(\w+)\.(?!py`)([\w.]+)`")


def collect_pages(root: Path, folder: Path) -> None:
    """Writes the site's pages to `folder`: README.md, docs/ and all files that they link to, directly or not.

    Raises:
        ValueError: links to files that do not exist or to names that their files do not define, a line each.
    """
    pages = [path for ending in ("md", "ipynb", "css") for path in sorted(root.glob(f"docs/**/*.{ending}"))]
    queue = ["README.md", *(path.relative_to(root).as_posix() for path in pages)]
    collected, problems = set[str](), list[str]()
    while queue:
        path = queue.pop()
        if path in collected:
            continue
        collected.add(path)
        target = folder / site_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith((".md", ".ipynb")):
            text, links = adapt_links(root, path, problems)
            target.write_text(text, encoding="utf-8")
            queue += links
        elif path.endswith(".py"):
            source = (root / path).read_text(encoding="utf-8")
            target.write_text(_SOURCE_PAGE.format(path=path, source=source), encoding="utf-8")
        else:
            shutil.copy(root / path, target)
    if problems:
        raise ValueError("\n".join(problems))


def site_path(path: str) -> str:
    """Where a file of the repository is below the folder of pages."""
    if path == "README.md":
        return "index.md"
    path = re.sub(r"\.ipynb$", ".md", path)
    return path.removeprefix("docs/") if path.startswith("docs/") else path + ".md" * path.endswith(".py")


def adapt_links(root: Path, page: str, problems: list[str]) -> tuple[str, list[str]]:
    """The text of a page with its links between pages of the site, and the files that it links to.

    Dead links are added to `problems`.
    """
    linked: list[str] = []

    def adapt(match: re.Match[str]) -> str:
        if match["link"] is None or re.match(r"[a-z]+:|#", match["target"]):
            return match[0]
        name, _, anchor = match["target"].partition("#")
        path = os.path.normpath(PurePosixPath(page).parent / name)
        if not (root / path).is_file():
            problems.append(f"{page}: {match[0]} leads to no file of the repository")
            return match[0]
        linked.append(path)
        text, qualified = match["text"], _QUALIFIED_NAME.fullmatch(match["text"])
        if path.endswith(".py") and qualified:
            line = find_line(root / path, qualified[1], qualified[2])
            if line is None:
                problems.append(f"{page}: {path} does not define {qualified[2]}")
            text, anchor = f"{text}:{line}", f"__codelineno-0-{line}"
        target = os.path.relpath(site_path(path), PurePosixPath(site_path(page)).parent)
        return f"[{text}]({target}{'#' * bool(anchor)}{anchor})"

    text = (root / page).read_text(encoding="utf-8")
    return _MARKUP.sub(adapt, render_notebook(json.loads(text)) if page.endswith(".ipynb") else text), linked


def render_notebook(notebook: Mapping[str, Any]) -> str:
    """A notebook as Markdown: its text, its code, and what each cell printed or drew as HTML."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        language = "bash" if source.startswith("%%bash\n") else "python"
        parts.append("\n".join((f"```{language}", source.removeprefix("%%bash\n"), "```")))
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append("\n".join(("```text", "".join(output["text"]).rstrip("\n"), "```")))
            elif "text/html" in output["data"]:
                parts.append("".join(output["data"]["text/html"]))
    return "\n\n".join(parts) + "\n"


def find_line(path: Path, module: str, name: str) -> int | None:
    """The line on which a module defines a function, class or method (`Model.step`); None: it does not."""
    definitions = dict(_definitions(ast.parse(path.read_text(encoding="utf-8")), ""))
    return definitions.get(name) if path.stem == module else None


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield prefix + child.name, child.lineno
            yield from _definitions(child, f"{prefix}{child.name}.")


def main() -> int:
    shutil.rmtree(ROOT / PAGES, ignore_errors=True)
    try:
        collect_pages(ROOT, ROOT / PAGES)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes expected.json: what Jinja makes of the templates in this folder.

Needs Debian's python3-jinja2 (3.1.2), which is set up as Hugging Face's
transformers sets it up for chat templates (utils/chat_template_utils.py of
4.51): the immutable sandbox, trim_blocks, lstrip_blocks, loop controls, a
"generation" block, tojson as json.dumps without escapes for HTML,
raise_exception and strftime_now, the latter at a fixed time.

Every template (*.jinja) is rendered with every input (inputs.json), and every
line of snippets.txt with the variables below. A line that ends with a backslash
goes on in the next one, and so does one in the middle of a string.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).parent
NOW = datetime.datetime(2026, 3, 4, 5, 6, 7, tzinfo=datetime.timezone.utc)
SNIPPET_VARIABLES = {
    "s": "text",
    "l": ["x", "y", "z"],
    "d": {"a": 1, "b": {"c": "deep"}, "é": [True, None, 1.5]},
    "m": [
        {"role": "system", "content": "zero"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Two"},
        {"role": "user", "content": "three"},
    ],
}


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None,
           sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(source, variables):
    """The text, or what went wrong: only raise_exception's words are kept."""
    try:
        text = environment().from_string(source).render(**variables)
        text.encode()  # a lone surrogate is an error here
        return {"text": text}
    except Raised as error:
        return {"raised": str(error)}
    except Exception:  # Jinja's, Python's: any is an error
        return {"error": True}


def snippets():
    joined = ""
    for line in (FOLDER / "snippets.txt").read_text().splitlines():
        joined += line
        # A string or tag that spans lines.
        if line.endswith("\\") or line.endswith("{{ 'multi"):
            joined += "\n"
            continue
        yield joined
        joined = ""


def main():
    inputs = json.loads((FOLDER / "inputs.json").read_text())
    expected = {
        "jinja": jinja2.__version__,
        "now_unix_ms": int(NOW.timestamp() * 1000),
        "snippet_variables": SNIPPET_VARIABLES,
        "snippets": [
            {"source": source, **render(source, SNIPPET_VARIABLES)}
            for source in snippets()
        ],
        "templates": {
            path.stem: {
                name: render(path.read_text(), variables)
                for name, variables in inputs.items()
            }
            for path in sorted(FOLDER.glob("*.jinja"))
        },
    }
    text = json.dumps(expected, ensure_ascii=False, indent=1) + "\n"
    (FOLDER / "expected.json").write_text(text)
    print(f"{len(expected['snippets'])} snippets,",
          f"{len(expected['templates'])} templates, {len(inputs)} inputs",
          file=sys.stderr)


if __name__ == "__main__":
    main()

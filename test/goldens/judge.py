"""Renders chat templates as Hugging Face's transformers do. Reads lines of JSON: a template's source, and items, a list with the
variables of each rendering. Writes a line of JSON for each: the text of the first rendering that does not throw, or null."""
import json
import sys
from datetime import datetime

from jinja2.ext import Extension, loopcontrols
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise TemplateError(message)


class Generation(Extension):
    """The tag that marks the model's text for training. What it encloses is rendered unchanged."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
ENVIRONMENT.filters["tojson"] = tojson
ENVIRONMENT.globals["raise_exception"] = raise_exception
ENVIRONMENT.globals["strftime_now"] = lambda form: datetime.now().strftime(form)


def render(source, items):
    try:
        return ENVIRONMENT.from_string(source).render(**items)
    except Exception:
        return None


for line in sys.stdin:
    asked = json.loads(line)
    texts = (render(asked["source"], items) for items in asked["items"])
    print(json.dumps(next((text for text in texts if text is not None), None)), flush=True)

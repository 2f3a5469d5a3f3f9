/** A template's source as the library's lexer takes it, with what Jinja's lexer reads in addition. */

const STRING = /'(?:\\[\s\S]|[^'\\])*'|"(?:\\[\s\S]|[^"\\])*"/g;

/** A comment, or a tag with its strings. */
const TAG = new RegExp(`\\{#[\\s\\S]*?#\\}|\\{[{%](?:${STRING.source}|[^'"])*?[%}]\\}`, 'g');

const RAW = /(^[ \t]*)?\{%([-+]?)\s*raw\s*(-?)%\}([\s\S]*?)\{%([-+]?)\s*endraw\s*([-+]?)%\}(\n?)/gm;

/** Characters that begin an escape sequence in Python. After others a backslash stands for itself. */
const ESCAPED = '\\\'"abfnrtvxuUN01234567\n';

export function readSource(source: string): string {
  return (
    source
      // Jinja knows one line end alone.
      .replace(/\r\n?/g, '\n')
      .replace(RAW, quoted)
      // White space in front of a block that begins a line, and the line end behind a block, unless there is a `+`.
      .replace(/^[ \t]*(\{[%#])(?!\+)/gm, '$1')
      .replace(/([^+][%#]\})\n/g, '$1')
      .replace(/\{%\+/g, '{%')
      .replace(/\+%\}/g, '%}')
      .replace(TAG, (tag) => (tag.startsWith('{#') ? tag : tag.replace(STRING, withEscapes)))
  );
}

function withEscapes(literal: string): string {
  return literal.replace(/\\([\s\S])/g, (all, next: string) => (ESCAPED.includes(next) ? all : `\\${all}`));
}

/** The text of a `raw` block as an expression. */
function quoted(
  _: string,
  indent: string | undefined,
  before: string,
  afterStart: string,
  text: string,
  beforeEnd: string,
  after: string,
  lineEnd: string,
): string {
  const start = afterStart === '-' ? text.trimStart() : text;
  const whole = beforeEnd === '-' ? start.trimEnd() : beforeEnd === '+' ? start : start.replace(/\n[ \t]+$/, '\n');
  const literal = whole.replace(/[^\w ]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const [open, close] = [before === '-' ? '{{-' : '{{', after === '-' ? '-}}' : '}}'];
  return `${before === '+' ? (indent ?? '') : ''}${open} '${literal}' ${close}${after === '+' ? lineEnd : ''}`;
}

/** The most headers in one file: endpoints need one or two. */
const MAX_HEADERS = 16;

/** RFC 9110's tokens, and the allowed characters of a header's value. */
const LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):[ \t]*([\x20-\x7e]{1,4096})$/;

/** Headers that the exporter sets itself. */
const RESERVED: ReadonlySet<string> = new Set(['content-type', 'content-length', 'content-encoding', 'host']);

/**
 * The headers in a file's text, one `name: value` per line; empty lines and those that begin with `#` are ignored. A
 * string is an error message, which does not quote the file.
 */
export function parseHeaders(text: string): Readonly<Record<string, string>> | string {
  const headers: Record<string, string> = {};
  for (const [i, line] of text.split('\n').entries()) {
    const trimmed = line.trim();
    if (trimmed === '' || trimmed.startsWith('#')) continue;
    const [, name = '', value = ''] = LINE.exec(trimmed) ?? [];
    if (name === '' || RESERVED.has(name.toLowerCase())) return `line ${i + 1} is not a header that can be sent`;
    headers[name.toLowerCase()] = value;
  }
  const count = Object.keys(headers).length;
  return count >= 1 && count <= MAX_HEADERS ? headers : `must contain 1 to ${MAX_HEADERS} headers`;
}

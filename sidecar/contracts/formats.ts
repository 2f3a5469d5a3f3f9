/** Tests of texts that schemas ask for: URLs, which are never fetched, and lengths in code points. Each is linear in its text. */

/** Longest scheme-to-path part that is handed to the URL parser, in characters; a host name has at most 253. */
const MAX_AUTHORITY = 512;

/** Longest `data:` header (media type and parameters), in characters. */
const MAX_DATA_HEADER = 1024;

/** Space and control characters are never part of a URL, though parsers strip them. */
const SPACE_OR_CONTROL = /[\p{Cc}\p{Z}]/u;

/** RFC 2397's media type and parameters, in RFC 2045 tokens (`%` for escaped quotes), then an optional `;base64`. */
const DATA_HEADER =
  /^(?:[\w!#$%&'*+.^`|~-]+\/[\w!#$%&'*+.^`|~-]+)?(?:;[\w!#$%&'*+.^`|~-]+=[\w!#$%&'*+.^`|~-]+)*(;base64)?$/i;

// Searches for one bad character: unlike a repeated group over the whole text, they need no backtracking stack.
const NOT_URL_CHARACTER = /[^\w\-.!~*'();/?:@&=+$,%]/;
const NOT_BASE64_CHARACTER = /[^A-Za-z0-9+/%]/;
const BAD_ESCAPE = /%(?![0-9A-Fa-f]{2})/;

/** Whether a text is an https URL or an RFC 2397 data URL. */
export function isImageUrl(text: string): boolean {
  const scheme = text.slice(0, 8).toLowerCase();
  if (scheme === 'https://') return isHttpsUrl(text);
  return scheme.startsWith('data:') && isDataUrl(text);
}

/** Whether a text of at most a few hundred characters is an absolute URI. */
export function isUri(text: string): boolean {
  return !SPACE_OR_CONTROL.test(text) && URL.canParse(text);
}

function isHttpsUrl(text: string): boolean {
  if (SPACE_OR_CONTROL.test(text)) return false;
  const rest = text.slice(8, 8 + MAX_AUTHORITY + 1);
  const end = rest.search(/[/?#\\]/);
  if (end < 0 && rest.length > MAX_AUTHORITY) return false;
  // `https:///x` parses, with x as the host: the authority must stand where it should.
  const authority = end < 0 ? rest : rest.slice(0, end);
  return authority !== '' && URL.canParse(`https://${authority}/`);
}

function isDataUrl(text: string): boolean {
  const comma = text.slice(0, MAX_DATA_HEADER).indexOf(',');
  if (comma < 0) return false;
  const header = DATA_HEADER.exec(text.slice('data:'.length, comma));
  if (header === null) return false;
  const data = text.slice(comma + 1);
  if (BAD_ESCAPE.test(data)) return false;
  return header[1] === undefined ? !NOT_URL_CHARACTER.test(data) : isBase64(data);
}

/** Base64 as URLs carry it: padding may be left out, any character may be percent-escaped. */
function isBase64(data: string): boolean {
  const padding = data.endsWith('==') ? 2 : data.endsWith('=') ? 1 : 0;
  const digits = padding === 0 ? data : data.slice(0, -padding);
  if (NOT_BASE64_CHARACTER.test(digits)) return false;
  if (digits.includes('%')) return true;
  return padding === 0 ? digits.length % 4 !== 1 : (digits.length + padding) % 4 === 0;
}

/** The formats that our schemas name: a test of the text, and the requirement as a predicate. */
export const FORMATS: Readonly<Record<string, { validate: (text: string) => boolean; message: string }>> = {
  'image-url': { validate: isImageUrl, message: 'must be an https or data URL' },
  uri: { validate: isUri, message: 'must be a URI' },
};

/** Whether a text has at most `limit` code points: at least half its UTF-16 length, at most all of it, so most are decided at once. */
export function hasAtMost(text: string, limit: number): boolean {
  if (text.length <= limit) return true;
  if (text.length > 2 * limit) return false;
  let points = text.length;
  for (let i = 0; i + 1 < text.length; i++) {
    if ((text.charCodeAt(i) & 0xfc00) === 0xd800 && (text.charCodeAt(i + 1) & 0xfc00) === 0xdc00) {
      points--;
      i++;
    }
  }
  return points <= limit;
}

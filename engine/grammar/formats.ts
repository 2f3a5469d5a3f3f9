/** The formats of JSON Schema that grammars enforce, as patterns. */

const DAY = String.raw`(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))`;
const CLOCK = String.raw`(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?`;
const ZONE = String.raw`(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`;
const BYTE = String.raw`(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`;
const GROUP = '[0-9a-fA-F]{1,4}';
/** Whatever its length: fewer states. */
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?';
const HOST = String.raw`${LABEL}(?:\.${LABEL})*`;
const HEX = '[0-9a-fA-F]';
/** Of RFC 3986, without what must be percent-encoded. */
const URI_CHARACTER = String.raw`(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%${HEX}{2})`;
const URI = String.raw`[A-Za-z][A-Za-z0-9+.-]*:(?://[A-Za-z0-9._~-]+(?::\d{1,5})?(?:[/?]${URI_CHARACTER}*)?|[A-Za-z0-9._~@+-]${URI_CHARACTER}*)(?:#${URI_CHARACTER}*)?`;

const N = String.raw`\d{1,4}`;
const DAYS = `(?:${N}Y(?:${N}M)?(?:${N}D)?|${N}M(?:${N}D)?|${N}D)`;
const HOURS = `T(?:${N}H(?:${N}M)?(?:${N}S)?|${N}M(?:${N}S)?|${N}S)`;

/**
 * By name. They are the usual forms of what RFC 3339, 5321, 3986, 4122 and 1123 allow: an address without quotes, a URI with a
 * host name, an IPv6 address without `::` in short.
 */
const FORMATS: Readonly<Record<string, string>> = {
  date: DAY,
  time: `${CLOCK}${ZONE}`,
  'date-time': `${DAY}T${CLOCK}${ZONE}`,
  duration: `P(?:${N}W|${DAYS}(?:${HOURS})?|${HOURS})`,
  uuid: `${HEX}{8}-${HEX}{4}-${HEX}{4}-${HEX}{4}-${HEX}{12}`,
  ipv4: String.raw`${BYTE}(?:\.${BYTE}){3}`,
  ipv6: `${GROUP}(?::${GROUP}){7}|::1|(?:${GROUP}:){1,6}:${GROUP}`,
  email: String.raw`[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*@(?:${LABEL}\.)+[A-Za-z]{2,}`,
  hostname: HOST,
  uri: URI,
  url: URI,
  'uri-reference': URI,
};

/** Undefined: no grammar enforces this format. */
export function formatPattern(format: string): string | undefined {
  return Object.hasOwn(FORMATS, format) ? `^(?:${FORMATS[format] ?? ''})$` : undefined;
}

/** The filter `tojson` as Python's json has it, where the library writes numbers as JavaScript does. */
import { isSet } from './jinja-arguments.js';
import type { Value } from './jinja-library.js';
import { isList } from './jinja-values.js';
import { pythonFloat } from './written-number.js';

/** The filter's arguments. */
interface JsonArguments {
  readonly ascii: Value | undefined;
  readonly indent: Value | undefined;
  readonly separators: Value | undefined;
  readonly sorted: Value | undefined;
}

interface Layout {
  readonly between: string;
  readonly afterName: string;
  /** Absent: all on one line. */
  readonly indent?: string;
  readonly ascii: boolean;
  readonly sorted: boolean;
}

/** A value as JSON. What is not defined is null. Throws for functions. */
export function pythonJson(value: Value, { ascii, indent, separators, sorted }: JsonArguments): string {
  const width = Number(indent?.value ?? 0);
  const [between, afterName] = separators && isList(separators) ? separators.value.map(String) : [];
  return written(value, '\n', {
    between: between ?? (width > 0 ? ',' : ', '),
    afterName: afterName ?? ': ',
    ...(width > 0 && { indent: ' '.repeat(width) }),
    ascii: isSet(ascii),
    sorted: isSet(sorted),
  });
}

/** `line`: a line's beginning. */
function written(value: Value, line: string, layout: Layout): string {
  switch (value.type) {
    case 'NullValue':
    case 'UndefinedValue':
      return 'null';
    case 'BooleanValue':
      return String(value.value);
    case 'IntegerValue':
      return value.toString();
    case 'FloatValue':
      return FLOATS[pythonFloat(value.value as number)] ?? pythonFloat(value.value as number);
    case 'StringValue':
      return jsonString(value.value as string, layout);
  }
  const next = line + (layout.indent ?? '');
  if (isList(value)) {
    const items = value.value.map((item) => written(item, next, layout));
    return bracketed('[', items, ']', line, layout);
  }
  if (value.type !== 'ObjectValue' && value.type !== 'NamespaceValue') throw new Error(`no JSON of ${value.type}`);
  const entries = [...(value.value as ReadonlyMap<string, Value>)];
  if (layout.sorted) entries.sort(([a], [b]) => (a < b ? -1 : 1));
  const members = entries.map(
    ([name, member]) => jsonString(name, layout) + layout.afterName + written(member, next, layout),
  );
  return bracketed('{', members, '}', line, layout);
}

function bracketed(
  open: string,
  items: readonly string[],
  close: string,
  line: string,
  { between, indent }: Layout,
): string {
  if (indent === undefined || items.length === 0) return open + items.join(between) + close;
  const next = line + indent;
  return open + next + items.join(between + next) + line + close;
}

function jsonString(text: string, { ascii }: Layout): string {
  const json = JSON.stringify(text);
  if (!ascii) return json;
  return json.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Floats that Python's json writes otherwise than Python. */
const FLOATS: Readonly<Record<string, string>> = { inf: 'Infinity', '-inf': '-Infinity', nan: 'NaN' };

/**
 * The metrics and labels that a PromQL expression uses, as far as a test needs them to check that they exist. It is no
 * parser: it finds names only.
 */
import { Metrics } from '../../sidecar/telemetry/metrics.js';

/** Labels that Prometheus adds to whatever it scrapes, and to its own series. */
const SCRAPE_LABELS = ['instance', 'job'];

/** Prometheus' own series. */
const OWN = new Map([['up', SCRAPE_LABELS]]);

/** Every series that a scrape can find, with its labels. */
export async function knownSeries(): Promise<ReadonlyMap<string, readonly string[]>> {
  const known = new Map(OWN);
  // prom-client names the process’s own metrics.
  const metrics = new Metrics([]);
  for (const [, name = ''] of (await metrics.render()).text.matchAll(/^# TYPE ((?:process|nodejs)_\w+) /gm)) {
    known.set(name, SCRAPE_LABELS);
  }
  for (const { name, type, labels } of metrics.definitions) {
    const all = [...labels, ...SCRAPE_LABELS];
    if (type !== 'histogram') known.set(name, all);
    else {
      known.set(`${name}_bucket`, [...all, 'le']);
      for (const part of ['sum', 'count']) known.set(`${name}_${part}`, all);
    }
  }
  return known;
}

/** Names in an expression that do not exist, each in a few words; none: all exist. */
export function unknownIn(expr: string, known: ReadonlyMap<string, readonly string[]>): string[] {
  const problems: string[] = [];
  const labels = new Set([...known.values()].flat());
  const bare = expr
    .replace(/\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)/g, (_, listed: string) => {
      for (const label of listed.split(',').map((each) => each.trim())) {
        if (label !== '' && !labels.has(label)) problems.push(`no label ${label}`);
      }
      return ' ';
    })
    .replace(/\[[^\]]*\]/g, ' ');
  for (const [, name = '', matchers = ''] of bare.matchAll(
    /\b([a-z]+(?:_[a-z0-9]+)+|up)\b(?!\s*\()(?:\{([^}]*)\})?/g,
  )) {
    const own = known.get(name);
    if (!own) {
      problems.push(`no metric ${name}`);
      continue;
    }
    for (const [, label = ''] of matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"/g)) {
      if (!own.includes(label)) problems.push(`no label ${label} on ${name}`);
    }
  }
  return problems;
}

/** The sum of a metric's series in Prometheus' text format; undefined: it has none. */
export function metricOf(text: string, name: string): number | undefined {
  let sum: number | undefined;
  for (const line of text.split('\n')) {
    if (!line.startsWith(name)) continue;
    const rest = line.slice(name.length);
    if (rest[0] !== ' ' && rest[0] !== '{') continue;
    const [value = ''] = rest
      .slice(rest.lastIndexOf('}') + 1)
      .trim()
      .split(/\s+/);
    const number = Number(value);
    if (value !== '' && Number.isFinite(number)) sum = (sum ?? 0) + number;
  }
  return sum;
}

/** The sum of a metric's series in Prometheus' text format; undefined: it has none. */
export function metricOf(text: string, name: string): number | undefined {
  const values = seriesOf(text, name);
  return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) : undefined;
}

/** The values of a metric's series, such as one for each data-parallel rank. */
export function seriesOf(text: string, name: string): readonly number[] {
  return text.split('\n').flatMap((line) => {
    if (!line.startsWith(name)) return [];
    const rest = line.slice(name.length);
    if (rest[0] !== ' ' && rest[0] !== '{') return [];
    const [value = ''] = rest
      .slice(rest.lastIndexOf('}') + 1)
      .trim()
      .split(/\s+/);
    const number = Number(value);
    return value !== '' && Number.isFinite(number) ? [number] : [];
  });
}

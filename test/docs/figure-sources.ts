/**
 * Figures that pages give within a sentence. A comment behind the number names its source here, so that the sentence may be
 * worded freely: `0.179<!-- figure spool-p50 --> ms`.
 */

/** One cell of a table under bench/results. */
export interface FigureSource {
  /** The file's name without `.md`. */
  readonly results: string;
  readonly column: string;
  /** The row: a value for each of these columns. */
  readonly where: Readonly<Record<string, string>>;
  /** The figure is the cell divided by the largest value of its column over all rows that differ only in this column. */
  readonly peakOver?: string;
}

/** A cell of `llama-server-native`: the sidecar over HTTP. */
function overHttp(column: string, model: string, tokens: string, cores: string, callers: string): FigureSource {
  const where = { model, 'tokens a reply': tokens, cores, load: `closed, ${callers}`, temperature: '0' };
  return { results: 'llama-server-native', column, where };
}

function engineAlone(sequences: string): FigureSource {
  return { results: 'engine-limit', column: 'ours, greedy', where: { model: '150m', threads: '1', sequences } };
}

function nativeAddon(sequences: string): FigureSource {
  return { results: 'engine-limit-native', column: 'ratio, greedy', where: { model: '13m', threads: '1', sequences } };
}

function peakKept(server: string): FigureSource {
  return { results: 'overload', column: 'good /s', where: { server, load: '10x' }, peakOver: 'load' };
}

function beside(model: string, column: string): FigureSource {
  return { results: 'engine-prefill', column, where: { model, 'prefillShare %': '50' } };
}

function fanOut(column: string, replicas: string): FigureSource {
  return { results: 'fan-out', column, where: { what: replicas } };
}

function besideImages(column: string): FigureSource {
  return { results: 'vision-gaps', column, where: { server: 'ra-sidecar' } };
}

const SHARE = 'ours over our engine alone';

export const FIGURES: Readonly<Record<string, FigureSource>> = {
  'spool-p50': { results: 'spool', column: 'p50 ms', where: { how: 'the spool', callers: '1' } },
  'engine-150m-1': engineAlone('1'),
  'engine-150m-8': engineAlone('8'),
  'engine-150m-32': engineAlone('32'),
  'native-13m-1': nativeAddon('1'),
  'native-13m-8': nativeAddon('8'),
  'native-13m-32': nativeAddon('32'),
  'peak-kept-ours': peakKept('ra-sidecar'),
  'peak-kept-nginx': peakKept('llama-server behind nginx limit_conn'),
  'admission-enter-p99': {
    results: 'admission-operations',
    column: 'p99, µs',
    where: { seats: '256', operation: 'enter' },
  },
  'timing-off-p99': {
    results: 'server-timing',
    column: 'off p99 ms',
    where: { load: '8 callers for 2 seats of 5 ms' },
  },
  'timing-admit-steady-p99': {
    results: 'server-timing',
    column: 'ra-admit p99 ms',
    where: { load: '1000/s by the clock' },
  },
  'refused-bytes-p99': { results: 'server-timing', column: 'p99 ms', where: { 'refused as': '`bytes`' } },
  'http-ratio-150m-1': overHttp('ratio', '150m', '64', 'any', '1'),
  'http-ratio-150m-8': overHttp('ratio', '150m', '64', 'any', '8'),
  'http-ratio-150m-32': overHttp('ratio', '150m', '64', 'any', '32'),
  'http-kept-150m-8': overHttp(SHARE, '150m', '64', 'any', '8'),
  'http-kept-13m-8': overHttp(SHARE, '13m', '64', 'any', '8'),
  'prefill-gap-13m': beside('13m', 'p99 of ms a token beside, over undisturbed'),
  'prefill-gap-150m': beside('150m', 'p99 of ms a token beside, over undisturbed'),
  'fan-out-cost': fanOut('to the C program', '8 replicas'),
  'images-gap-p99': besideImages('p99 ratio, median of pairs'),
  'decisions-speedup': {
    results: 'decisions',
    column: 'times as fast as one by one',
    where: { how: 'ours, isolated: the input prefilled once' },
  },
};

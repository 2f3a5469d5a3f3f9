/** bench/results/README.md: every result, with the commit that it is of and what the machine did meanwhile. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PLAN } from '../../bench/run/plan.js';
import { sourceRoot } from '../support/source-root.js';
import { row } from './markdown.js';

const RESULTS = join(sourceRoot, 'bench/results');

/** Benches whose question is answered and which no page cited: their names, and the last verdict. Their code and result are in the history. */
const ANSWERED: Readonly<Record<string, string>> = {
  'architectures-checkpoints':
    'the state of a sliding window of 1,536 tokens has 5 MiB and is saved in 2.9 ms, that of a recurrent layer 0.05 MiB in 0.1 ms, where a step takes 14',
  balances: 'the event loop is blocked for 2.6 ms at most while the balances of 100,000 accounts are written (goal 5)',
  'engine-elsewhere':
    'a first token comes as soon through the sidecar as from its llama-server directly, within the noise (p90 12.6 ms beside 12.5)',
  'engine-steps-native':
    'the engine’s JavaScript takes 8 to 32 µs of its main thread a token; engine-limit has its speed',
  'grammar-neighbours':
    'beside another account’s expensive tools the p99 of a stream’s gaps is at most 1.59 times that beside a plain tool (goal 2)',
  hostile: 'hostile bodies block the event loop for 5.9 ms at most (bound 50); that they are refused is a test',
  'key-lookup':
    'a credential is checked in 5.0 to 5.3 µs whatever comes out of it; that each is hashed and looked up once is a test',
  'overload-elsewhere':
    'before a llama-server the sidecar serves 0.96 to 1.01 of what nginx with as many connections does, and the light account gets its fair share',
  'replica-fairness':
    'Jain’s index of three accounts is 0.985 with four replicas behind one queue, 0.96 with one engine of all seats',
  'replica-kills':
    'four replicas of which one is killed every 5 s serve 1.31 times what three do (goal 0.9), and only jobs of the killed engines fail; ' +
    'that is a test',
  tracing: 'a sampled trace takes 4.6 µs on a request’s way and 44 µs later; without an endpoint traces take 0.13',
  'usage-page': 'a page of `GET /v1/usage` takes 3.1 ms at p99 (goal 5)',
};

/** What `bench/support/results.ts` writes; earlier results lack some. */
interface Kept {
  readonly title: string;
  readonly command: string;
  readonly date: string;
  readonly node: string;
  readonly commit?: string;
  readonly rough?: boolean;
  readonly seconds?: number;
}

export function resultsPage(): string {
  const files = readdirSync(RESULTS);
  const kept = files
    .filter((file) => file.endsWith('.json'))
    .sort()
    .map(
      (file) => [file.replace(/\.json$/, ''), JSON.parse(readFileSync(join(RESULTS, file), 'utf8')) as Kept] as const,
    );
  const others = files
    .filter((file) => file.endsWith('.md') && file !== 'README.md' && !files.includes(file.replace(/md$/, 'json')))
    .sort();
  const commits = kept.filter(([, { commit }]) => commit !== undefined).length;
  const rows = kept.map(([name, { title, command, date, node, commit, rough, seconds }]) =>
    row(
      `[${name}](${name}.md)`,
      title,
      commit ?? 'not recorded',
      date.slice(0, 10),
      node,
      rough === undefined ? 'see there' : rough ? 'busy or uneven' : 'quiet, or of no matter',
      minutes(name, seconds),
      `\`${command}\``,
    ),
  );
  return `${[
    '# Results',
    '`make docs` writes this page from the files of this folder. `make bench` runs every bench whose result is not of the present code, ' +
      'except those of a GPU; after a break it goes on. `make bench-list` lists them and how long they take. A result of a bench names the commit ' +
      `that was checked out${commits === kept.length ? '' : `; ${commits} of ${kept.length} do, the others are of earlier benches, which did not record it`}.`,
    [
      row('result', 'what', 'commit', 'date', 'Node', 'machine', 'minutes', 'command'),
      row(...Array.from({ length: 8 }, () => '---')),
      ...rows,
    ].join('\n'),
    `Without their benches, which had one question and are not in the repository any more: ${others.map((file) => `[${file.replace(/\.md$/, '')}](${file})`).join(', ')}.`,
    `Removed with their results, which no page cited and whose questions are answered:\n\n${Object.entries(ANSWERED)
      .map(([name, verdict]) => `- ${name}: ${verdict}.`)
      .join('\n')}`,
  ].join('\n\n')}\n`;
}

/** As the bench recorded it, else as it is planned. */
function minutes(name: string, seconds: number | undefined): string {
  if (seconds !== undefined) return (seconds / 60).toFixed(1);
  const planned = PLAN.find(({ results }) => results.includes(name))?.minutes;
  return planned === undefined ? '' : `about ${planned}`;
}

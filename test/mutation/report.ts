/** Writes bench/results/mutation.md from the results of Stryker and rules.ts in dist/. */
import { readFileSync, writeFileSync } from 'node:fs';
import { machine } from '../../bench/support/machine.js';
import { reasonFor } from './survivors.js';

/** The part of mutation-testing-report-schema that this file reads. */
interface Report {
  readonly files: Readonly<Record<string, { readonly source: string; readonly mutants: readonly Mutant[] }>>;
}

interface Mutant {
  readonly mutatorName: string;
  readonly status: 'Killed' | 'Timeout' | 'Survived' | 'NoCoverage' | 'RuntimeError' | 'CompileError' | 'Ignored';
  readonly replacement?: string;
  readonly location: { readonly start: Place; readonly end: Place };
}

interface Place {
  readonly line: number;
  readonly column: number;
}

const { files } = JSON.parse(readFileSync('dist/mutation.json', 'utf8')) as Report;
const rules = readFileSync('dist/mutation-rules.txt', 'utf8');

const killed = ({ status }: Mutant): boolean => status === 'Killed' || status === 'Timeout';
const counted = (mutants: readonly Mutant[]): (string | number)[] => {
  const of = (...statuses: string[]): number => mutants.filter(({ status }) => statuses.includes(status)).length;
  const score =
    mutants.length === 0 ? 'none' : `${((100 * mutants.filter(killed).length) / mutants.length).toFixed(1)} %`;
  return [mutants.length, of('Killed'), of('Timeout'), of('Survived'), of('NoCoverage'), score];
};

const row = (cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |\n`;
const code = (text: string): string => `\`${text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ')}\``;

/** The mutated text; a longer one by its first line. */
function original(source: string, { start, end }: Mutant['location']): string {
  const line = source.split('\n')[start.line - 1] ?? '';
  return line.slice(start.column - 1, start.line === end.line ? end.column - 1 : undefined);
}

let table = '';
let survivors = '';
const all: Mutant[] = [];
let unexplained = 0;
for (const [path, { source, mutants }] of Object.entries(files)) {
  const file = path.split('/').at(-1) ?? path;
  all.push(...mutants);
  table += row([file, ...counted(mutants)]);
  for (const mutant of mutants.filter((one) => !killed(one))) {
    const text = original(source, mutant.location);
    const line = source.split('\n')[mutant.location.start.line - 1] ?? '';
    const why = reasonFor(file, line);
    if (why === undefined) unexplained++;
    survivors += row([
      `${file}:${mutant.location.start.line}`,
      code(text),
      code(mutant.replacement ?? ''),
      why ?? 'no case yet',
    ]);
  }
}

writeFileSync(
  'bench/results/mutation.md',
  `# Mutation of sidecar/contracts

\`make mutation\`. ${machine()}

Two runs over the same tests (test/sidecar/contracts, its tables in test/contract/tables), all in-process.

## Rules left out

Each keyword, field, branch and member of a set of every schema is left out in turn (test/mutation/rules.ts); some case of
the tables must then have another outcome. Stryker does not mutate objects that are \`as const\`, as the schemas are.

\`\`\`
${rules.trim()}
\`\`\`

## Mutants of the code

Stryker 9.6 with a runner of our own (test/mutation/runner.ts). A mutant that times out loops for ever.

| file | mutants | killed | timed out | survived | not run | score |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
${table}${row(['all', ...counted(all)])}
## Survivors

| where | code | becomes | why no case can tell |
| --- | --- | --- | --- |
${survivors}`,
);
process.stdout.write(
  `bench/results/mutation.md: ${counted(all).at(-1) ?? ''}, ${unexplained} survivors without a reason\n`,
);

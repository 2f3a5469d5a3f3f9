/** The command lines of the documentation: which blocks run, and why the others do not. */
import type { Block, Page } from './pages.js';

/** Reasons for a block not to run: ` ```sh not-run: needs root `. Others are not accepted. */
const REASONS = [
  'needs root',
  'needs a GPU',
  'needs the network',
  'needs Docker',
  'needs a service of yours',
  'takes minutes',
  'run by make e2e',
  'run by test/contract/store-keys.test.ts',
] as const;

/** Languages of command lines or programs that readers copy; tests have no Python. */
const RUN = 'sh';
const NEVER_RUN = 'python';

/** No test would run them. A block marked `transcript` has what a command printed, which may be lines to copy with a key of that run. */
const OTHER_SHELLS = ['bash', 'shell', 'console', 'shell-session', 'zsh'];

/** How a line begins that a reader would copy into a shell. */
const COMMAND =
  /^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:node dist|make|curl|npx?|jq|sudo|systemctl|docker|git|ra-sidecar|kill|tar|cp) /;

export interface Blocks {
  readonly run: readonly Block[];
  /** With its reason. */
  readonly left: readonly (Block & { readonly reason: string })[];
  /** Blocks that neither run nor have a reason, one line each. */
  readonly problems: readonly string[];
}

/** Generated pages show how commands are called, not lines to copy; their own tests compare them with the code. */
const GENERATED = '<!-- Generated';

/** Sorts a page’s blocks. Command lines outside of `sh` blocks are problems: no test would notice if they broke. */
export function shellBlocks({ path, text, blocks, prose }: Page): Blocks {
  const run: Block[] = [];
  const left: (Block & { reason: string })[] = [];
  const problems: string[] = [];
  for (const block of blocks) {
    const problem = (what: string): unknown => problems.push(`${path}:${block.line}: ${what}`);
    const [, language = '', reason] = /^(\S*)(?:\s+not-run:\s+(.*))?$/.exec(block.info) ?? [];
    if (OTHER_SHELLS.includes(language)) problem(`\`\`\`${language}: command lines go into \`\`\`sh`);
    else if (language !== RUN && language !== NEVER_RUN) {
      if (reason !== undefined) problem('only command lines have a reason not to be run');
      if (['', 'text'].includes(language) && block.text.split('\n').some(isCommand))
        problem('a command line outside of ```sh');
    } else if (reason !== undefined) {
      left.push({ ...block, reason });
      if (!(REASONS as readonly string[]).includes(reason)) problem(`"${reason}" is no reason not to run it`);
    } else if (language === NEVER_RUN) problem('Python is not run: say why');
    else run.push(block);
  }
  for (const [at, line] of text.startsWith(GENERATED) ? [] : prose.entries()) {
    if (/^(?: {4}|\t)/.test(line) && isCommand(line.trim()))
      problems.push(`${path}:${at + 1}: a command line outside of \`\`\`sh`);
  }
  return { run, left, problems };
}

function isCommand(line: string): boolean {
  return COMMAND.test(line);
}

/** A part of a block: lines for a shell, or a sidecar to start. */
export type Step =
  | { readonly kind: 'lines'; readonly text: string }
  /** `variables`: set before the command on its line. */
  | { readonly kind: 'serve'; readonly variables: Readonly<Record<string, string>> };

const SERVE = /^((?:[A-Z][A-Z0-9_]*=\S* )*)(?:make run|(?:node dist\/sidecar\/cli\.js|ra-sidecar) serve)(?: &)?$/;

/** A block in parts: each line that starts a sidecar, which would never end, and the lines between. */
export function stepsOf(text: string): Step[] {
  const steps: Step[] = [];
  let lines: string[] = [];
  const close = (): void => {
    if (lines.some((line) => line.trim() !== '')) steps.push({ kind: 'lines', text: lines.join('\n') });
    lines = [];
  };
  for (const line of text.split('\n')) {
    const [whole, set = ''] = SERVE.exec(line.replace(/\s+#.*$/, '')) ?? [];
    if (whole === undefined) {
      lines.push(line);
      continue;
    }
    close();
    const variables = set.split(' ').filter((pair) => pair !== '');
    steps.push({
      kind: 'serve',
      variables: Object.fromEntries(
        variables.map((pair) => [pair.split('=', 1)[0] ?? '', pair.slice(pair.indexOf('=') + 1)]),
      ),
    });
  }
  close();
  return steps;
}

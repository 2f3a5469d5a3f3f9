/**
 * Runs every command line of the documentation, page by page, in their order: the newcomer’s pages and the operators’.
 */
import t from 'tap';
import { parsePage, readPages } from './pages.js';
import { shellBlocks, stepsOf } from './shell-blocks.js';
import { filledIn, PageRunner } from './shell-runner.js';
import { cases, rounds } from '../support/long-form.js';

/** The maximum number of blocks that are not run. */
const MOST_LEFT = 15;

const WALKED = ['README.md', 'docs/getting-started.md'];

const walk = await PageRunner.begin(t);
const pages = readPages().map((page) => ({ page, blocks: shellBlocks(page) }));
/** A newcomer’s pages run each time, the operators’ pages with `make test-long`. */
const walked = cases(pages, ({ page }) => WALKED.includes(page.path));

t.test('command lines are in blocks that run, or that state why not', async (t) => {
  t.strictSame(
    pages.flatMap(({ blocks }) => blocks.problems),
    [],
  );
  const left = pages.flatMap(({ page, blocks }) => blocks.left.map((block) => ({ path: page.path, ...block })));
  for (const { path, line, reason } of left) t.comment(`not run: ${path}:${line}: ${reason}`);
  const nowhere = left.filter(({ reason }) => !/^run by (test\/|make e2e$)/.test(reason));
  t.ok(nowhere.length <= MOST_LEFT, `${nowhere.length} blocks are not run`);
});

t.test('every other block of these pages runs', async (t) => {
  let ran = 0;
  for (const { page, blocks } of walked) {
    if (blocks.run.length === 0) continue;
    await t.test(page.path, async (t) => {
      await walk.enter(page);
      for (const block of page.blocks) {
        if (block.info === 'jsonc') await walk.save(block);
        if (!blocks.run.includes(block)) continue;
        const { code, output } = await walk.run(block);
        t.equal(code, 0, `${page.path}:${block.line}`, { output });
        ran += 1;
      }
    });
  }
  t.ok(ran > rounds({ short: 14, long: 20 }), `${ran} blocks were run`);
});

t.test('a command that fails is found', async (t) => {
  const page = parsePage(
    'docs/page.md',
    [
      '```sh',
      'PLACE=here # for the next block',
      '```',
      '```sh',
      'test "$PLACE" = here && mkdir in && cd in',
      '```',
      '```sh',
      'test "$(basename "$PWD")" = in && curl 127.0.0.1:8080/v1/models',
      '```',
      '```sh',
      'node ../dist/sidecar/cli.js keys create --no-such-option',
      '```',
      '```sh',
      'curl 127.0.0.1:8080/v1/models -H "Authorization: Bearer ra-dev-…" && curl localhost:9090/readyz',
      '```',
    ].join('\n'),
  );
  await walk.enter(page);
  const codes = [];
  for (const block of page.blocks) codes.push((await walk.run(block)).code);
  t.strictSame(codes, [0, 0, 22, 2, 0], 'the refused request and the wrong command line alone');
});

t.test('blocks that are not run are recognized', async (t) => {
  const page = parsePage(
    'docs/page.md',
    [
      '```sh not-run: needs root',
      'systemctl restart ra-sidecar',
      '```',
      '```sh not-run: I like it so',
      '```',
      '```bash',
      'true',
      '```',
      '```python',
      '```',
      '```',
      'RA_CONFIG=x make run',
      '```',
      '```json not-run: needs root',
      '```',
      '```text',
      'make run',
      '```',
      '',
      '    curl 127.0.0.1:8080/healthz',
      '    some text',
    ].join('\n'),
  );
  const { run, left, problems } = shellBlocks(page);
  t.strictSame(run, []);
  t.strictSame(
    left.map(({ reason }) => reason),
    ['needs root', 'I like it so'],
  );
  t.strictSame(problems, [
    'docs/page.md:4: "I like it so" is no reason not to run it',
    'docs/page.md:6: ```bash: command lines go into ```sh',
    'docs/page.md:9: Python is not run: say why',
    'docs/page.md:11: a command line outside of ```sh',
    'docs/page.md:14: only command lines have a reason not to be run',
    'docs/page.md:16: a command line outside of ```sh',
    'docs/page.md:20: a command line outside of ```sh',
  ]);
});

t.test('lines that start a sidecar are recognized', async (t) => {
  t.strictSame(stepsOf('cd x\nmake run\n'), [
    { kind: 'lines', text: 'cd x' },
    { kind: 'serve', variables: {} },
  ]);
  t.strictSame(stepsOf('RA_CONFIG=ra.jsonc RA_LOG_LEVEL=debug node dist/sidecar/cli.js serve &   # goes on\ntrue'), [
    { kind: 'serve', variables: { RA_CONFIG: 'ra.jsonc', RA_LOG_LEVEL: 'debug' } },
    { kind: 'lines', text: 'true' },
  ]);
  t.strictSame(stepsOf('make runs\necho make run'), [{ kind: 'lines', text: 'make runs\necho make run' }]);
});

t.test('placeholders are replaced', async (t) => {
  const here = { ports: { public: 1, operators: 2 }, key: 'ra-dev-k', pid: 3, model: '/m.gguf' };
  t.equal(
    filledIn('http://127.0.0.1:8080/v1 localhost:9090 ra-dev-… <pid> /models/my-model.gguf :8080', here),
    'http://127.0.0.1:1/v1 127.0.0.1:2 ra-dev-k 3 /m.gguf :8080',
  );
});

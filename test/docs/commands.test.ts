/**
 * Runs every command line of the documentation, page by page, in their order: the newcomer’s pages and the operators’.
 */
import t from 'tap';
import { readPages } from './pages.js';
import { shellBlocks } from './shell-blocks.js';
import { PageRunner } from './shell-runner.js';
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
  t.ok(ran > rounds({ short: 13, long: 20 }), `${ran} blocks were run`);
});

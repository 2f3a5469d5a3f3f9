/**
 * `node dist/test/goldens/judge.js`: where we render otherwise than llama-server (differences.ts), what Jinja2 in Python makes of
 * the same variables as ours. Needs python3 with jinja2.
 */
import { spawnSync } from 'node:child_process';
import { stdout } from 'node:process';
import { JinjaTemplate } from '../../engine/prompt/jinja.js';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import { WholeFloat } from '../../engine/prompt/whole-float.js';
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import { testModel } from '../support/models.js';
import { bundleTemplate } from '../support/prompt-models.js';
import { sourceRoot } from '../support/source-root.js';
import { CONVERSATIONS } from './conversations.js';
import { UNEQUAL } from './differences.js';
import { ourText, outcomeOf, readGoldens } from './hashes.js';

type Items = Readonly<Record<string, unknown>>;

/** The variables of every rendering since it was emptied. */
const rendered: Items[] = [];
const render = Reflect.get(JinjaTemplate.prototype, 'render');
JinjaTemplate.prototype.render = function (items: Items): string {
  rendered.push(items);
  return render.call(this, items);
};

const { templates } = await readGoldens();
const vocabulary = await loadVocabulary(await testModel());
const cases: { readonly name: string; readonly title: string; readonly ours: string; readonly line: string }[] = [];
for (const [name, titles] of UNEQUAL) {
  const source = await bundleTemplate(name);
  const made = makePromptParts(vocabulary, { chatTemplate: source });
  if (made.kind === 'bad') continue;
  for (const title of titles.split(' ')) {
    const conversation = CONVERSATIONS[title];
    if (conversation === undefined) continue;
    rendered.length = 0;
    const ours = outcomeOf(ourText(made.parts, conversation));
    cases.push({ name, title, ours, line: jsonOf({ source, items: rendered }) });
  }
}
await vocabulary.dispose();

/** Whole floats as JSON has them. */
function jsonOf(value: unknown): string {
  const text = JSON.stringify(value, (_, each: unknown) =>
    each instanceof WholeFloat ? `\uffff${each.value.toFixed(1)}\uffff` : each,
  );
  return text.replace(/"\uffff([^\uffff]*)\uffff"/g, '$1');
}

const judge = spawnSync('python3', [`${sourceRoot}/test/goldens/judge.py`], {
  input: cases.map(({ line }) => `${line}\n`).join(''),
  encoding: 'utf8',
  maxBuffer: 1 << 28,
});
if (judge.status !== 0) throw new Error(judge.stderr);
const verdicts = judge.stdout.trimEnd().split('\n');
for (const [i, { name, title, ours }] of cases.entries()) {
  const text = JSON.parse(verdicts[i] ?? 'null') as string | null;
  // Without the marks at which callers' text is cut.
  const jinja = outcomeOf(text?.replace(/[\ue000-\uf8ff]/g, ''));
  const theirs = templates[name]?.[title];
  const verdict = text === null ? 'throws' : jinja === ours ? 'ours' : jinja === theirs ? 'llama-server' : 'neither';
  stdout.write(`${verdict.padEnd(13)}${name} ${title}\n`);
}

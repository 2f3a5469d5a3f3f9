/**
 * `node dist/test/goldens/judge.js`: what Jinja2 in Python renders of the sidecar's variables, where the sidecar renders otherwise than
 * llama-server and where both refuse the request. Exits with 1 if a verdict is not the one that differences.ts has, or if Jinja2 renders
 * a request that both refuse. Needs python3 with jinja2.
 */
import { spawnSync } from 'node:child_process';
import { stdout } from 'node:process';
import { JinjaTemplate } from '../../engine/prompt/jinja.js';
import { makePromptParts } from '../../engine/prompt/prompt-parts.js';
import { WrittenNumber } from '../../engine/prompt/written-number.js';
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import { testModel } from '../support/models.js';
import { bundleTemplate } from '../support/prompt-models.js';
import { sourceRoot } from '../support/source-root.js';
import { CONVERSATIONS } from './conversations.js';
import { DIFFERENCES, type Verdict } from './differences.js';
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
interface Case {
  readonly name: string;
  readonly title: string;
  readonly ours: string;
  readonly line: string;
  readonly listed: Verdict;
}

const cases: Case[] = [];
for (const { template: name, conversations, jinja: listed } of DIFFERENCES) {
  const source = await bundleTemplate(name);
  const made = makePromptParts(vocabulary, { chatTemplate: source });
  if (made.kind === 'bad') continue;
  for (const title of conversations.split(' ')) {
    const conversation = CONVERSATIONS[title];
    if (conversation === undefined) continue;
    rendered.length = 0;
    const ours = outcomeOf(ourText(made.parts, conversation));
    cases.push({ name, title, ours, line: jsonOf({ source, items: rendered }), listed });
  }
}

/** Requests that both refuse: Jinja2 must throw too. */
for (const [name, theirs] of Object.entries(templates)) {
  const source = await bundleTemplate(name);
  const made = makePromptParts(vocabulary, { chatTemplate: source });
  for (const [title, conversation] of Object.entries(CONVERSATIONS)) {
    if (made.kind === 'bad' || theirs[title] !== 'none') continue;
    rendered.length = 0;
    const ours = outcomeOf(ourText(made.parts, conversation));
    if (ours !== 'none') continue;
    // A refused conversation is rendered without some of its parts too, to name the construct.
    const whole = ({ messages, tools }: Items): string => JSON.stringify([messages, tools]);
    const items = rendered.filter((each) => rendered[0] && whole(each) === whole(rendered[0]));
    cases.push({ name, title, ours, line: jsonOf({ source, items }), listed: 'throws' });
  }
}
await vocabulary.dispose();

/** JSON in which whole numbers that were written with a point keep it. */
function jsonOf(value: unknown): string {
  const text = JSON.stringify(value, (_, each: unknown) =>
    each instanceof WrittenNumber ? `\uffff${each.source}\uffff` : each,
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
for (const [i, { name, title, ours, listed }] of cases.entries()) {
  const text = JSON.parse(verdicts[i] ?? 'null') as string | null;
  // Without the marks at which the sidecar cuts callers' text.
  const jinja = outcomeOf(text?.replace(/[\ue000-\uf8ff]/g, ''));
  const theirs = templates[name]?.[title];
  const verdict: Verdict =
    text === null ? 'throws' : jinja === ours ? 'sidecar' : jinja === theirs ? 'llama-server' : 'neither';
  stdout.write(`${verdict.padEnd(13)}${name} ${title}${verdict === listed ? '' : `   (listed: ${listed})`}\n`);
  if (verdict !== listed) process.exitCode = 1;
}

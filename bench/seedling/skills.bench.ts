/**
 * What the seedling does in a chat, on wordings and names kept from its training: greedy replies against the one right answer,
 * by kind of task, through the engine as the server drives it.
 *
 *   node dist/bench/seedling/skills.bench.js [MODEL.gguf REPLIES RESULT_NAME]
 */
import { fileURLToPath } from 'node:url';
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import type { ChatExample } from './corpus/example.js';
import { chatAt } from './mix.js';
import { RowMaker } from './rows.js';
import { EngineDriver } from '../support/engine-driver.js';
import { keep, type Row } from '../support/results.js';
import { repliedTo, type Reply } from './replies.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

const DEFAULT = fileURLToPath(new URL('../../../engine/assets/seedling.gguf', import.meta.url));
const SEED = 22;
const MOST_TOKENS = 120;
const SHOWN = 12;

const [file = DEFAULT, count = '600', name = 'seedling-skills'] = process.argv.slice(2);
const vocabulary = await loadVocabulary(file);
const maker = new RowMaker(vocabulary);
const engine = await EngineDriver.start(file, 1, { contextPerSeat: 1024 });

async function reply(example: ChatExample): Promise<Reply> {
  const { prompt, format } = maker.prompt(example);
  let content = '';
  let thought = '';
  let ended = false;
  const calls: { name: string; arguments: string }[] = [];
  const job = {
    prompt,
    n: 1,
    seats: 1,
    maxTokens: MOST_TOKENS,
    temperature: 0,
    topP: 1,
    frequencyPenalty: 0,
    presencePenalty: 0,
    seed: 1,
    stops: [],
    scope: ALL_ACCOUNTS,
  };
  await engine.run([{ kind: 'generate', job: { ...job, ...(format && { format }) } }], ({ output }) => {
    if (output.kind === 'piece') {
      if (output.channel === 'content') content += output.text;
      else thought += output.text;
    }
    if (output.kind === 'call') {
      const call = (calls[output.index] ??= { name: '', arguments: '' });
      call.name ||= output.name ?? '';
      call.arguments += output.arguments;
    }
    if (output.kind === 'finished') ended = output.reason !== 'length';
    return undefined;
  });
  return { content, thought, ended, calls };
}

interface Judged {
  readonly topic: string;
  readonly right: boolean;
  readonly ended: boolean;
}

const judged: Judged[] = [];
const wrong: string[] = [];
for (let at = 0; at < Number(count); at++) {
  const example = chatAt(SEED, at, 'held');
  const given = await reply(example);
  const right = repliedTo(example, given);
  judged.push({ topic: example.topic, right, ended: given.ended });
  if (!right) {
    const ask = example.conversation.messages.at(-1)?.content;
    wrong.push(`${example.topic}: ${JSON.stringify(ask)} got ${JSON.stringify(given.content || given.calls)}`);
  }
}
await engine.close();
await vocabulary.dispose();

const share = (some: readonly boolean[]): number => some.filter(Boolean).length / some.length;
const row = (what: string, some: readonly Judged[]): Row => ({
  what,
  replies: some.length,
  right: share(some.map((one) => one.right)),
  'ended its turn': share(some.map((one) => one.ended)),
});
const topics = [...new Set(judged.map(({ topic }) => topic))].sort();
await keep(name, {
  title: 'What the seedling can do in a chat',
  about: [
    `${judged.length} conversations whose wordings and names were kept from training, greedy replies. Right: the very words of the generator's answer; for tool calls the name and the arguments; for JSON the same object; for questions with two answers either. Replies are cut at ${MOST_TOKENS} tokens.`,
    '`tools-unneeded` and `tools-unfit`: tools are offered and none is to be called. `thought`: sums with an effort asked for.',
  ],
  rows: [
    ...topics.map((topic) =>
      row(
        topic,
        judged.filter((one) => one.topic === topic),
      ),
    ),
    row('all', judged),
  ],
  conclusions: [
    `The first wrong ones:\n\n${wrong
      .slice(0, SHOWN)
      .map((line) => `- ${line}`)
      .join('\n')}`,
  ],
});

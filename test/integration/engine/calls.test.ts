/** Calls on a real decoder with real grammars; a random model samples whatever they leave open. */
import t, { type Test } from 'tap';
import {
  decodeOnce,
  type Decoder,
  type StepPart,
  type StepResults,
  type Sampler,
} from '../../../engine/scheduler/decoder.js';
import { callGrammar, callRules } from '../../../engine/grammar/calls.js';
import type { CallSyntax } from '../../../engine/protocol/reply-format.js';
import type { EngineSetup } from '../../../engine/protocol/setup.js';
import type { GenerateJob, Output } from '../../../engine/protocol/jobs.js';
import { loadRuntime } from '../../../engine/llama/runtime.js';
import { StepLoop } from '../../../engine/scheduler/step-loop.js';
import { cases } from '../../support/long-form.js';
import { testModel } from '../../support/models.js';
import { modelWithVocabulary } from '../../support/prompt-models.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';

const SEEDS = cases([1, 2, 3, 4, 5, 6, 7, 8], (_, index) => index < 5);

const FUNCTIONS = [
  {
    name: 'look',
    parameters: {
      type: 'object',
      properties: { at: { enum: ['here', '"there" {e}'] }, often: { type: 'boolean' } },
      required: ['at'],
      additionalProperties: false,
    },
  },
  { name: 'go', parameters: { type: 'object', properties: {}, additionalProperties: false } },
];
const ALLOWED = /^(look|go) (\{\s*\}|\{\s*"at":\s*("here"|"\\"there\\" \{e\}")\s*(,\s*"often":\s*(true|false)\s*)?\})$/;

interface Engine {
  /** Runs a reply to its end. */
  readonly run: (seed: number, format: GenerateJob['format']) => Promise<readonly Output[]>;
  /** All sampled tokens. */
  readonly sampled: number[];
  /** Grammars that were applied, with whether they accepted the text so far. */
  readonly attempts: { readonly gbnf: string; readonly took: boolean }[];
  /** A control token by its name. */
  readonly token: (text: string) => number;
}

async function start(t: Test, file: string): Promise<Engine> {
  const setup: Omit<EngineSetup, 'prefixCache'> = {
    file,
    kind: 'chat',
    seats: 1,
    contextPerSeat: 512,
    threads: 1,
    gpu: false,
    flashAttention: 'auto',
    prefillTokensPerStep: 64,
    prefillShare: 100,
    prefixReuse: 'off',
    heartbeatMs: 1000,
  };
  const runtime = await loadRuntime(setup);
  t.teardown(() => runtime.dispose());
  const sampled: number[] = [];
  const attempts: Engine['attempts'] = [];
  const { decoder } = runtime;
  const watched = Object.create(decoder, {
    step: {
      // No runs, whose choices would not be seen here.
      value: async function* (parts: readonly StepPart[]): StepResults {
        const results = await decodeOnce(decoder, parts);
        for (const result of results) if (result.kind === 'token') sampled.push(result.token);
        return results;
      },
    },
    halt: { value: decoder.halt.bind(decoder) },
    isExpensive: { value: decoder.isExpensive.bind(decoder) },
    sampler: {
      value: (...given: Parameters<Decoder['sampler']>): Sampler => {
        const sampler = decoder.sampler(...given);
        const constrain = sampler.constrain.bind(sampler);
        sampler.constrain = (gbnf, tokens) => {
          const took = constrain(gbnf, tokens);
          attempts.push({ gbnf, took });
          return took;
        };
        return sampler;
      },
    },
  }) as Decoder;
  const run = (seed: number, format: GenerateJob['format']): Promise<readonly Output[]> =>
    new Promise((resolve) => {
      const outputs: Output[] = [];
      const loop = new StepLoop(
        watched,
        runtime.tokens,
        { ...setup, origin: { weights: '', kv: 'f16' } },
        (_, outs) => {
          outputs.push(...outs);
          if (outs.some(({ kind }) => kind === 'done' || kind === 'failed')) resolve(outputs);
        },
      );
      const sampling = { temperature: 1, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed };
      // Another prompt each time: the first tokens of a random model depend little on the seed.
      const prompt = Uint32Array.from({ length: 8 }, (_, i) => 60 + i * seed);
      loop.generate(1, {
        prompt: tokenPrompt(prompt),
        n: 1,
        seats: 1,
        maxTokens: 400,
        ...sampling,
        stops: [],
        scope: ALL_ACCOUNTS,
        ...(format && { format }),
      });
    });
  const token = (text: string): number => {
    for (let i = 0; i < runtime.vocabulary; i++) if (runtime.tokens.control(i) === text) return i;
    throw new Error('no such control token');
  };
  return { run, sampled, attempts, token };
}

/** The calls of a reply, as `NAME ARGUMENTS`; the last may be unfinished. */
function callsOf(outputs: readonly Output[]): string[] {
  const calls: string[] = [];
  for (const output of outputs) {
    if (output.kind !== 'call') continue;
    if (output.name !== undefined) calls.push(`${output.name} `);
    calls.push((calls.pop() ?? '') + output.arguments);
  }
  return calls;
}

function rulesOf(syntax: CallSyntax): string {
  const rules = callRules(syntax, FUNCTIONS, { single: false, answer: false });
  if (rules.kind !== 'ok') throw new Error(rules.why);
  return rules.gbnf;
}

t.test('a reply is free until a call begins, constrained until its end, and free again', async (t) => {
  const { run, attempts } = await start(t, await testModel());
  // A mark that random weights write often, in tokens that begin before it and end after it.
  const syntax: CallSyntax = {
    mark: 'e',
    open: 'e{"name": "',
    between: '", "arguments": ',
    next: '}e{"name": "',
    close: '}',
  };
  const functions = FUNCTIONS.map(({ name }) => name);
  let calls = 0;
  let goesOn = false;
  for (const seed of SEEDS) {
    const outputs = await run(seed, {
      calls: { syntax, functions, single: false, gbnf: rulesOf(syntax) },
      markers: [],
    });
    const end = outputs.at(-2);
    const made = callsOf(outputs);
    if (end?.kind === 'finished' && end.reason === 'length' && !ALLOWED.test(made.at(-1) ?? '')) made.pop();
    for (const call of made) t.match(call, ALLOWED);
    calls += made.length;
    const kinds = outputs.map(({ kind }) => kind);
    goesOn ||= made.length > 0 && kinds.lastIndexOf('piece') > kinds.indexOf('call');
  }
  t.ok(goesOn, 'with content after a call');
  const took = attempts.filter((attempt) => attempt.took);
  t.ok(calls > SEEDS.length, `${calls} calls`);
  t.ok(
    took.some(({ gbnf }) => !gbnf.startsWith('root ::= calls')),
    'some marks begin within a token',
  );
  t.ok(
    attempts.some((attempt) => !attempt.took),
    'some tokens continue after the mark as no call does, and stay text',
  );
});

t.test('a mark that is one control token may be sampled while constrained, and no other may', async (t) => {
  const { run, sampled, token } = await start(t, await modelWithVocabulary('llama-bpe'));
  const mark = token('<|start_header_id|>');
  const syntax: CallSyntax = {
    mark: '<|start_header_id|>',
    open: '<|start_header_id|>{"name": "',
    between: '", "parameters": ',
    close: '}',
  };
  const functions = FUNCTIONS.map(({ name }) => name);
  const format = { calls: { syntax, functions, single: true }, grammar: { gbnf: callGrammar(rulesOf(syntax)) } };
  for (const markers of [['<|start_header_id|>'], []]) {
    sampled.length = 0;
    for (const seed of SEEDS) {
      const outputs = await run(seed, { ...format, markers });
      t.match(callsOf(outputs), [ALLOWED]);
      t.match(outputs.at(-2), { kind: 'finished', reason: 'tool_calls' });
    }
    t.equal(sampled.includes(mark), markers.length > 0);
  }
});

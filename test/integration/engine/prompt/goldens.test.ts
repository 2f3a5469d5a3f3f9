import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { makePromptParts } from '../../../../engine/prompt/prompt-parts.js';
import { loadVocabulary } from '../../../../engine/llama/vocabulary.js';
import { CONVERSATIONS, type GoldenClass } from '../../../goldens/conversations.js';
import { ourOutcome, readGoldens, type Outcome } from '../../../goldens/hashes.js';
import { bundleCheckout, bundleCommit, testModel } from '../../../support/models.js';
import { bundleTemplate } from '../../../support/prompt-models.js';

const COMMAND_R = 'llama-server refuses: it can make no parser for the reply. Ours is what the template writes.';
const R1 =
  'llama.cpp gives a call the content "", and this template shows calls only where the content is none. No tools: 422.';
const GEMMA =
  'llama.cpp gives this older template tool results as a member of the call, which its own words do not ask for.';

/** Where we render otherwise than llama-server, and why. Whoever changes that, for better or worse, changes this list. */
const UNEQUAL: Readonly<Record<string, string>> = {
  'Apertus-8B-Instruct effort-low': 'llama.cpp does not know that it can think, and never turns it on.',
  'Cohere2MoE effort-none': 'llama.cpp keeps the effort `none` from the template, which would turn thinking off by it.',
  'CohereForAI-c4ai-command-r-plus-tool_use call': COMMAND_R,
  'CohereForAI-c4ai-command-r-plus-tool_use calls': COMMAND_R,
  'CohereForAI-c4ai-command-r-plus-tool_use offer': COMMAND_R,
  'CohereForAI-c4ai-command-r-plus-tool_use offer-system': COMMAND_R,
  'CohereForAI-c4ai-command-r-plus-tool_use thought-call': COMMAND_R,
  'StepFun3.5-Flash turns': 'llama.cpp trims the texts of this model, against loops in its thoughts.',
  'deepseek-ai-DeepSeek-R1-Distill-Llama-8B call': R1,
  'deepseek-ai-DeepSeek-R1-Distill-Llama-8B thought-call': R1,
  'google-gemma-4-31B-it-interleaved call': GEMMA,
  'google-gemma-4-31B-it-interleaved calls': GEMMA,
  'google-gemma-4-31B-it-interleaved thought-call': GEMMA,
  'openbmb-MiniCPM5-1B calls': 'The template prints a list; llama.cpp joins its items without anything between them.',
  'unsloth-mistral-Devstral-Small-2507 thought-turns': 'llama.cpp loses the reply that a thought goes with.',
};

/** Their requests with tools answer 422. llama-server renders them as if no tools had been on offer. */
const NO_TOOLS = [
  'HuggingFaceTB-SmolLM3-3B',
  'deepseek-ai-DeepSeek-R1-Distill-Llama-8B',
  'deepseek-ai-DeepSeek-R1-Distill-Qwen-32B',
  'deepseek-ai-DeepSeek-V3.1',
  'fireworks-ai-llama-3-firefunction-v2',
  'google-gemma-2-2b-it',
  'llama-cpp-rwkv-world',
  'microsoft-Phi-3.5-mini-instruct',
];

/** Templates of the bundle that must render as llama.cpp renders them, at least, by class. */
const AT_LEAST: Readonly<Partial<Record<GoldenClass, number>>> = { plain: 62, tools: 64, loop: 56 };

t.test('each template of the bundle renders as with llama-server', async (t) => {
  const { llama, templates } = await readGoldens();
  t.equal(llama, await bundleCommit(), 'the goldens are of this bundle; else `make goldens`');
  const files = await readdir(join(await bundleCheckout(), 'models/templates'));
  const names = files.filter((name) => name.endsWith('.jinja')).map((name) => name.slice(0, -'.jinja'.length));
  t.same(Object.keys(templates).sort(), names.sort());
  // The one that llama-server was started with, for its BOS and EOS.
  const vocabulary = await loadVocabulary(await testModel());
  t.teardown(() => vocabulary.dispose());

  const unequal: string[] = [];
  const noTools: string[] = [];
  for (const [name, theirs] of Object.entries(templates)) {
    const made = makePromptParts(vocabulary, await bundleTemplate(name));
    if (made.kind === 'ok' && !made.parts.template.capabilities.tools) noTools.push(name);
    for (const [title, conversation] of Object.entries(CONVERSATIONS)) {
      const ours: Outcome = made.kind === 'ok' ? ourOutcome(made.parts, conversation) : 'none';
      if (ours !== theirs[title]) unequal.push(`${name} ${title}`);
    }
  }
  t.same(noTools.sort(), NO_TOOLS);
  t.same(unequal.sort(), Object.keys(UNEQUAL).sort());

  for (const [kind, least] of Object.entries(AT_LEAST)) {
    const titles = Object.keys(CONVERSATIONS).filter((title) => CONVERSATIONS[title]?.class === kind);
    const equal = names.filter((name) => titles.every((title) => !unequal.includes(`${name} ${title}`)));
    t.ok(equal.length >= least, `${kind}: ${equal.length} of ${names.length}, at least ${least}`);
  }
});

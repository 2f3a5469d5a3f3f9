/**
 * Where we render otherwise than llama-server, who is right, and why. The judge is Jinja2 in Python (judge.ts), with the
 * variables that we give the template; where llama.cpp rewrites the conversation before it renders, the template's words are.
 * Templates that Jinja2 throws at: command-r-plus, whose tools have parameters without a description, and Seed-OSS, whose tools
 * have no parameters.
 */

const FUNCTIONARY =
  'Ours for a default of null, which is written as None, as in Jinja2; llama-server writes nothing. A null in an enum is None in Jinja2 and nothing in either.';
const COMMAND =
  "Ours: llama-server answers 400 to any tool, since its interpreter cannot look a member's name up that is not there. Jinja2 throws at a parameter without a description, of which ours writes an empty one.";
const APERTUS = 'Ours: llama.cpp does not know that it can think, and never turns it on.';
const SEED = 'Ours, as in Jinja2: llama-server answers 500 where a property has no type.';
const COHERE = 'Ours: llama.cpp keeps the effort `none` from the template, which turns thinking off by it.';
const STEP =
  'Ours, as in Jinja2: llama-server trims the texts of this model, against loops in its thoughts; the template does not.';
const GEMMA2 = 'Ours: llama-server leaves a system message alone out, and the model has nothing to answer.';
const GEMMA4 =
  'Ours: results belong to the calls of their ids; llama-server names them in the order in which they come.';
const NUMBERS =
  'Ours, as in Jinja2: the `string` filter writes 1e3 and 1.0 with a point; llama-server does so only where no filter is.';
const TURN =
  'Ours, as in Jinja2: llama-server begins another turn of the model behind an empty text beside a call; the template does not.';
const MINICPM =
  'Ours, as in Jinja2: the template prints a list or an object; llama.cpp prints nothing between its items, or nothing at all. A null argument of `call-deep` is None in Jinja2 and nothing in either.';
const HY3 = 'Ours: the template throws at this effort, and is rendered without it; llama-server answers 500.';
const DEVSTRAL = 'Ours: llama.cpp loses the reply that a thought goes with.';
const LINES =
  'llama-server, as Jinja2 has the content as it is sent: a line end stays between a thought that is left out and the call. Marks in callers\u2019 text are cut, so that the thought is taken out of the content before the template sees it.';

/**
 * Templates that list no tools, or only under a name that llama.cpp does not give them. Of these every conversation with tools
 * differs: ours has the tools in the prompt, llama-server's has not, so that its model does not know of them.
 */
export const UNLISTED: readonly string[] = [
  'HuggingFaceTB-SmolLM3-3B',
  'deepseek-ai-DeepSeek-R1-Distill-Llama-8B',
  'deepseek-ai-DeepSeek-R1-Distill-Qwen-32B',
  'deepseek-ai-DeepSeek-V3.1',
  'fireworks-ai-llama-3-firefunction-v2',
  'google-gemma-2-2b-it',
  'llama-cpp-rwkv-world',
  'microsoft-Phi-3.5-mini-instruct',
];

/** Template, conversations, and why. */
export const UNEQUAL: readonly (readonly [template: string, conversations: string, why: string])[] = [
  ['Apertus-8B-Instruct', 'effort-low effort-medium effort-high effort-tools', APERTUS],
  ['ByteDance-Seed-OSS', 'offer-deep call-deep', SEED],
  ['ByteDance-Seed-OSS', 'call-numbers', NUMBERS],
  ['Cohere2MoE', 'offer-none effort-none', COHERE],
  [
    'CohereForAI-c4ai-command-r-plus-tool_use',
    'offer offer-system offer-deep offer-data offer-turns offer-none offer-json call calls calls-open calls-swapped calls-in-turn call-empty call-deep call-numbers call-unicode call-marks result-empty result-nameless loop-user thought-call thought-calls thought-content-call effort-tools',
    COMMAND,
  ],
  ['LFM2.5-8B-A1B', 'call-numbers', NUMBERS],
  ['NVIDIA-Nemotron-3-Nano-30B-A3B-BF16', 'call-numbers', NUMBERS],
  ['Qwen-QwQ-32B', 'thought-content-call', LINES],
  ['Qwen3-Coder', 'call-numbers', NUMBERS],
  ['Qwen3.5-4B', 'call-numbers', NUMBERS],
  ['StepFun3.5-Flash', 'turns long edges', STEP],
  ['StepFun3.5-Flash', 'call-numbers', NUMBERS],
  ['google-gemma-2-2b-it', 'system-alone', GEMMA2],
  ['google-gemma-4-31B-it-interleaved', 'calls-swapped', GEMMA4],
  ['google-gemma-4-31B-it', 'thought-content-call', TURN],
  ['meetkai-functionary-medium-v3.2', 'offer-deep call-deep', FUNCTIONARY],
  ['openbmb-MiniCPM5-1B', 'calls calls-open calls-swapped calls-in-turn call-deep', MINICPM],
  ['tencent-Hy3', 'effort-medium', HY3],
  ['unsloth-mistral-Devstral-Small-2507', 'thought-turns thought-calls', DEVSTRAL],
];

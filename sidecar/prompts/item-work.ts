/** Processes the prompt host's items, in a pool's thread (worker.ts) or its own: checks bodies and makes tokens of them. */
import { loadVocabulary } from '../../engine/llama/vocabulary.js';
import { MAX_ARGUMENT_NESTING, MAX_ARGUMENT_VALUES } from '../../engine/prompt/call-arguments.js';
import { callFormatText } from '../../engine/prompt/tool-use.js';
import { chatPrompt, type ChatPrompt, type PromptParts } from '../../engine/prompt/chat-prompt.js';
import {
  DECISION_PROMPT_TOKENS,
  makeDecisionPrompt,
  type DecisionPrompt,
  type DecisionTokens,
} from '../../engine/prompt/decision-prompt.js';
import { InputTokenizer, type InputTokens, type NoInputTokens } from '../../engine/prompt/input-tokens.js';
import { makePromptParts, toolsOf, promptVersionOf } from '../../engine/prompt/prompt-parts.js';
import type { CompiledConstraint } from '../../engine/prompt/reply-constraint.js';
import type { Vocabulary } from '../../engine/prompt/tokens.js';
import type { PairTexts } from '../../engine/protocol/jobs.js';
import { isPooling } from '../../engine/protocol/setup.js';
import { parseBody } from '../contracts/parse.js';
import { refuse } from '../contracts/body-refusals.js';
import type { BodyForm, ChatRequest, DecisionRequest, EmbeddingRequest, RerankRequest } from '../contracts/requests.js';
import { overContextError } from '../domain/errors.js';
import { checkBody, givenTokens, longInput } from './check-body.js';
import { readImages } from './images.js';
import type { Answer, HostSetup, ModelReport, PromptModel, WorkerTask } from './messages.js';
import { failed, refusal, refused, unservable, type Refusal } from './prompt-maker.js';

export type ItemWork = (task: WorkerTask) => readonly ModelReport[] | Answer;

type MadeParts = ReturnType<typeof makePromptParts>;
type LoadedModel = { readonly report: ModelReport; readonly model: PromptModel } & (
  | { readonly kind: 'chat'; readonly parts: PromptParts }
  | { readonly kind: 'decision'; readonly prompt: DecisionPrompt }
  | { readonly kind: 'embedding' | 'rerank'; readonly inputs: InputTokenizer }
  | { readonly kind: 'broken' }
);

/** Loads models' tokenizers and templates, each once per file. A model that cannot be served is reported, others continue. */
function loadModels(models: readonly PromptModel[]): Promise<LoadedModel[]> {
  const files = new Map<string, Promise<Vocabulary>>();
  const templates = new Map<string, MadeParts>();
  return Promise.all(
    models.map(async (model) => {
      const vocabulary = files.get(model.file) ?? loadVocabulary(model.file);
      files.set(model.file, vocabulary);
      try {
        return prepareModel(model, await vocabulary, templates);
      } catch (error) {
        return broken(model, error instanceof Error ? error.message : 'the file cannot be loaded');
      }
    }),
  );
}

function prepareModel(model: PromptModel, vocabulary: Vocabulary, templates: Map<string, MadeParts>): LoadedModel {
  const { kind } = model;
  if (isPooling(kind)) {
    const inputs = { most: model.contextPerSeat, vocabulary: vocabulary.size, width: vocabulary.width };
    const promptVersion = promptVersionOf(vocabulary.hash);
    const report = { id: model.id, promptVersion, inputs, tools: false, system: false };
    return { kind, model, report, inputs: new InputTokenizer(vocabulary) };
  }
  const key = JSON.stringify([model.file, model.template]);
  const made = templates.get(key) ?? makePromptParts(vocabulary, model.template);
  templates.set(key, made);
  if (made.kind === 'bad') return broken(model, made.problem);
  const { parts } = made;
  const promptVersion = promptVersionOf(vocabulary.hash, model.template);
  const tools = toolsOf(parts);
  const { system } = parts.template.capabilities;
  const report = { id: model.id, promptVersion, tools: tools.calls !== undefined, system };
  if (model.kind === 'chat') {
    const calls = callFormatText(tools);
    const thoughts = parts.thoughts && ({ thoughts: true } as const);
    return { kind: 'chat', model, report: { calls, ...report, ...thoughts }, parts };
  }
  const decision = makeDecisionPrompt(parts);
  if (decision.kind === 'bad') return broken(model, decision.problem);
  return { kind: 'decision', model, report, prompt: decision.prompt };
}

function broken(model: PromptModel, problem: string): LoadedModel {
  return { kind: 'broken', model, report: { id: model.id, tools: false, system: false, problem } };
}

/**
 * Makes the prompt of a body: the second step. It parses the bytes again, since the sidecar did the first step itself, or a host that may
 * have ended. `compiled`: the grammars of its tools and schemas, if compiling them is more work than this thread may do.
 */
function tokenize(
  models: ReadonlyMap<string, LoadedModel>,
  form: BodyForm,
  bytes: Uint8Array,
  compiled?: CompiledConstraint,
): Answer {
  const parsed = parseBody(form, bytes);
  if (parsed.kind === 'invalid') return refused(parsed.error);
  const { request } = parsed;
  const model = models.get(request.params.model);
  if ('inputs' in request) return model?.kind === 'embedding' ? embed(model, request) : failed('no model');
  if ('query' in request) return model?.kind === 'rerank' ? rerank(model, request) : failed('no model');
  if ('conversation' in request)
    return model?.kind === 'chat' ? chat(model, request, form, compiled) : failed('no model');
  return model?.kind === 'decision' ? decide(model, request) : failed('no model');
}

type PoolingModel = LoadedModel & { kind: 'embedding' | 'rerank' };

function embed(model: PoolingModel, request: EmbeddingRequest): Answer {
  const { inputs, single, truncate } = request;
  const texts = inputs.filter((input) => typeof input === 'string');
  if (texts.length === 0) return givenTokens(request, model.report) ?? failed('no model');
  const made = model.inputs.ofTexts(texts, { most: model.model.contextPerSeat, truncate });
  return answerOf(model, made, (input) => (single ? 'input' : `input[${input}]`));
}

function rerank(model: PoolingModel, { query, documents, truncate }: RerankRequest): Answer {
  const { contextPerSeat: most, pairTexts = false } = model.model;
  // What is cut off is known in tokens alone.
  const made = model.inputs.ofPairs(query, documents, { most, truncate: truncate && !pairTexts });
  return answerOf(model, made, (input) => `documents[${input}]`, pairTexts ? { query, documents } : undefined);
}

/** `place`: where the body has an input. `pairs`: for an engine that scores texts. */
function answerOf(
  { kind, report: { promptVersion, inputs }, model: { contextPerSeat, pairTexts } }: PoolingModel,
  made: InputTokens | NoInputTokens,
  place: (input: number) => string,
  pairs?: PairTexts,
): Answer {
  if (made.kind === 'inputs') {
    const more = { ...(promptVersion !== undefined && { promptVersion }), ...(pairs && { pairs }) };
    const { head, tokens, lengths, truncated } = made;
    return { kind, head, tokens, lengths, truncated, width: inputs?.width ?? 0, ...more };
  }
  const param = place(made.input);
  const together = kind === 'rerank' ? ' with the query' : '';
  if (made.kind === 'empty') return refusal('bad_request', `${param} has no tokens. Send a longer text.`, param);
  const has = `${param}${together} has ${made.exact ? '' : 'at least '}${made.tokens} tokens`;
  return longInput(param, has, contextPerSeat, pairTexts !== true);
}

function chat(
  model: LoadedModel & { kind: 'chat' },
  request: ChatRequest,
  form: BodyForm,
  compiled: CompiledConstraint | undefined,
): Answer {
  const { params, conversation, replySchema, switches, places } = request;
  const limit = model.model.contextPerSeat;
  const place = places && ((at: number, part: number) => `${places[at]?.at ?? 'input'}.content[${part}]`);
  const read = readImages(conversation, model.model.images, place);
  if (read.kind === 'refused') return read;
  const made = chatPrompt(
    model.parts,
    read.conversation,
    {
      addGenerationPrompt: true,
      ...(params.reasoningEffort === undefined ? {} : { reasoningEffort: params.reasoningEffort }),
      ...(params.calls && { calls: params.calls }),
      jsonObject: params.jsonObject,
      strictHistory: form === 'chat',
      ...(replySchema && { replySchema }),
      ...(switches && { switches }),
      ...(params.thoughtBudget !== undefined && { thoughtBudget: params.thoughtBudget }),
    },
    limit,
    compiled ?? 'quick',
  );
  if (made.kind === 'needs-compiler') return made;
  if (made.kind === 'prompt') {
    const { prompt, format } = made;
    if (model.model.wholeGrammars && format?.calls?.gbnf !== undefined) return CALLS_UNENFORCEABLE;
    const { promptVersion } = model.report;
    const more = { ...(promptVersion !== undefined && { promptVersion }), ...(format && { format }) };
    return { kind: 'chat', prompt, ...more, ...(read.images.length > 0 && { images: read.images }) };
  }
  if (made.kind === 'failed') return cannotRender(made, request, form);
  if (made.kind === 'unservable') return unservable(made, form, request);
  return refused(overContextError(limit, { prompt: made.atLeast, least: true }, 'messages', form !== 'chat'));
}

/** Without a grammar a call could be anything. */
const CALLS_UNENFORCEABLE = refusal(
  'unprocessable',
  "This model's server cannot constrain a call that the model may or may not make: set tool_choice to required, to a function, or to none.",
  'tool_choice',
);

function cannotRender(failure: ChatPrompt & { kind: 'failed' }, { places }: ChatRequest, form: BodyForm): Refusal {
  const { why, templateText: says, message, call } = failure;
  const place = message === undefined ? undefined : (places?.[message]?.at ?? `messages[${message}]`);
  const all = form === 'responses' ? 'input' : 'messages';
  switch (why) {
    case 'tools':
      return refusal('unprocessable', 'This model is served without tools.', 'tools');
    // The strict contract alone has these two, which has no `places`.
    case 'arguments':
      return refusal('unprocessable', JSON_ARGUMENTS, `${place ?? all}.tool_calls[${call ?? 0}].function.arguments`);
    case 'unpaired-result':
      return refused(refuse(`${place ?? all}.tool_call_id`, OF_A_CALL).error);
    case 'conversation':
      return refusal(
        'unprocessable',
        `This model's chat template cannot express this conversation${says === undefined ? '' : `: ${says.replace(/[.!]+$/, '')}`}.`,
        place ?? all,
      );
  }
}

const JSON_ARGUMENTS =
  `The arguments of tool calls must be JSON, nested at most ${MAX_ARGUMENT_NESTING} levels, with at most ` +
  `${MAX_ARGUMENT_VALUES} values in all.`;

const OF_A_CALL =
  'must be the id of a call that the assistant made before, in the same turn, and that has no other result';

function decide(model: LoadedModel & { kind: 'decision' }, request: DecisionRequest): Answer {
  const questions = request.params.questions.map(({ type, answers }, at) => ({
    type,
    answers,
    question: request.questions[at]?.question ?? '',
    meanings: request.questions[at]?.meanings ?? [],
  }));
  const made = model.prompt.tokenize(request.input, questions);
  const { promptVersion } = model.report;
  if (made.kind === 'tokens') {
    const { input, questions } = made;
    return { kind: 'decision', input, questions, ...(promptVersion !== undefined && { promptVersion }) };
  }
  return tooLong(made, request.params.route);
}

function tooLong(made: DecisionTokens & { kind: 'too-long' }, route: 'decisions' | 'systemone'): Refusal {
  const count = made.exact ? `${made.tokens}` : `at least ${made.tokens}`;
  // The names of systemone's questions are the caller's text, so its path ends before the name.
  const param = route === 'decisions' ? `questions[${made.question}]` : 'questions';
  return refusal(
    'bad_request',
    `The prompt of question ${made.question} (input, question and template) has ${count} tokens; ` +
      `at most ${DECISION_PROMPT_TOKENS} are allowed.`,
    param,
  );
}

/** Loads the models of a host. Resolves with what processes an item. */
export async function loadItemWork({ models: asked }: Pick<HostSetup, 'models'>): Promise<ItemWork> {
  const loaded = await loadModels(asked);
  const models = new Map(loaded.map((model) => [model.model.id, model]));
  const reports = loaded.map(({ report }) => report);
  return (task) => {
    switch (task.kind) {
      case 'report':
        return reports;
      case 'check':
        return checkBody(task.form, task.bytes, reports);
      case 'tokenize':
        return tokenize(models, task.form, task.bytes, task.compiled);
    }
  };
}

/** The first of a body's two steps, on the sidecar's event loop or in a prompt host. */
import { concatTokens } from '../../engine/prompt/tokens.js';
import { parseBody } from '../contracts/parse.js';
import type { BodyForm, EmbeddingRequest } from '../contracts/requests.js';
import type { ModelReport } from './messages.js';
import { refusal, refused, type Checked, type Refusal, type Tokenized } from './prompt-maker.js';

/** Whether a body is a valid request. Inputs that are tokens already need no tokenizer, so that nothing is left of the second step. */
export function checkBody(form: BodyForm, bytes: Uint8Array, models: readonly ModelReport[]): Checked {
  const parsed = parseBody(form, bytes);
  if (parsed.kind === 'invalid') return refused(parsed.error);
  const { request } = parsed;
  const report = models.find(({ id }) => id === request.params.model);
  const made = 'inputs' in request ? givenTokens(request, report) : undefined;
  return { kind: 'checked', params: request.params, ...(made && { made }) };
}

/** The inputs of a request that are tokens already, which stay as they are; undefined if they are texts, or the model is not known. */
export function givenTokens(
  { inputs, single, truncate }: EmbeddingRequest,
  report: ModelReport | undefined,
): Tokenized | undefined {
  const given = inputs.filter((input) => typeof input !== 'string');
  if (report?.inputs === undefined || given.length === 0) return undefined;
  const { most, vocabulary, width } = report.inputs;
  const place = (input: number): string => (single ? 'input' : `input[${input}]`);
  const long = truncate ? -1 : given.findIndex(({ length }) => length > most);
  if (long >= 0) return longInput(place(long), `${place(long)} has ${given[long]?.length} tokens`, most);
  const odd = given.findIndex((ids) => !ids.every((token) => token < vocabulary));
  if (odd >= 0) return refusal('bad_request', `${place(odd)} has a token that this model does not have.`, place(odd));
  const kept = given.map((ids) => ids.slice(0, most));
  const [tokens, lengths] = [concatTokens(kept), Uint32Array.from(kept, ({ length }) => length)];
  const truncated = [...given.keys()].filter((input) => (given[input]?.length ?? 0) > most);
  const more = { truncated, width, ...(report.promptVersion !== undefined && { promptVersion: report.promptVersion }) };
  return { kind: 'embedding', tokens, lengths, ...more };
}

/** The refusal of an input that has more tokens than its model takes. `cuts`: its end can be cut off. */
export function longInput(param: string, has: string, most: number, cuts = true): Refusal {
  const advice = `Shorten it${cuts ? ', or set truncate to true to have its end cut off' : ''}.`;
  return refusal('bad_request', `${has}, and this model takes inputs of at most ${most}. ${advice}`, param);
}

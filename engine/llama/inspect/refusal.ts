/** Why a model file was not fetched, in words for the operator. */

/** The message is such a line. */
export class Refusal extends Error {}

export const SILENT = 'its host does not answer';

/** What a network says, in words. */
const NETWORK: Readonly<Record<string, string>> = {
  ENOTFOUND: 'its host is not known',
  EAI_AGAIN: 'its host’s name cannot be looked up: is there a network?',
  ECONNREFUSED: 'its host refuses the connection',
  ECONNRESET: 'its host ended the connection',
  ENETUNREACH: 'there is no network to its host',
  EHOSTUNREACH: 'its host cannot be reached',
  ETIMEDOUT: SILENT,
};

const STATUSES: Readonly<Record<number, string>> = {
  401: 'its host asks who you are (401): for Hugging Face, set HF_TOKEN',
  403: 'its host does not give it to you (403)',
  404: 'its host has no such file (404)',
};

/** One line for the operator, without the address. Also of what the downloader says in words alone. */
export function wordsFor(error: unknown): string {
  if (error instanceof Refusal) return error.message;
  const { code, statusCode, cause, name, message } = error as NodeJS.ErrnoException & { statusCode?: number };
  if (name === 'TimeoutError') return SILENT;
  if (/^Cannot get quantization/.test(message)) return 'its host has no such model, or not in that quantisation';
  const status = statusCode ?? Number(/^Failed to fetch manifest .*: (\d{3}) /.exec(message)?.[1] ?? 0);
  if (status > 0) return STATUSES[status] ?? `its host answers ${status}`;
  const reason = code ?? (cause as NodeJS.ErrnoException | undefined)?.code;
  if (reason !== undefined) return NETWORK[reason] ?? `it cannot be fetched (${reason})`;
  return error instanceof Error && /fetch/.test(message)
    ? 'its host cannot be reached: is there a network?'
    : 'it cannot be fetched';
}

/**
 * The code of the functions that check values against our schemas, as text, which a process compiles when it uses it. The build writes
 * this module anew (sidecar/build/), and beside it a file with the code of all, written-code.txt. The module reads that file as bytes
 * when it is loaded: 3 MB of text among a program's own code took a tenth of its start, since V8 scans and copies it.
 */

export interface WrittenCode {
  /** Of the schema. */
  readonly name: string;
  /**
   * Returns the body of a function of `module`, `hasAtMost` and `formats` that sets `module.exports`. Absent: it was not written.
   */
  readonly code?: () => string;
}

export const CHAT_CODE: WrittenCode = { name: 'chat' };
export const COMPATIBLE_CODE: WrittenCode = { name: 'compatible' };
export const RESPONSES_CODE: WrittenCode = { name: 'responses' };
export const MESSAGES_CODE: WrittenCode = { name: 'messages' };
export const DECISIONS_CODE: WrittenCode = { name: 'decisions' };
export const SYSTEMONE_CODE: WrittenCode = { name: 'systemone' };
export const EMBEDDINGS_CODE: WrittenCode = { name: 'embeddings' };
export const RERANK_CODE: WrittenCode = { name: 'rerank' };
export const BATCHES_CODE: WrittenCode = { name: 'batches' };
export const BATCH_LINE_CODE: WrittenCode = { name: 'batch-line' };
export const SETTINGS_CODE: WrittenCode = { name: 'settings' };
export const KEYS_CODE: WrittenCode = { name: 'keys' };
export const AUTHORIZER_ANSWER_CODE: WrittenCode = { name: 'authorizer-answer' };
export const CREDIT_CODE: WrittenCode = { name: 'credit' };
export const USAGE_RECORD_CODE: WrittenCode = { name: 'usage-record' };
export const BALANCES_CODE: WrittenCode = { name: 'balances' };
export const PRICES_CODE: WrittenCode = { name: 'prices' };
export const TOTALS_CODE: WrittenCode = { name: 'totals' };
export const TOTALS_POSITION_CODE: WrittenCode = { name: 'totals-position' };

/** Of an answer's schema. */
export function answerCode(kind: string): WrittenCode {
  return { name: `answer-${kind}` };
}

/** One line of `ra-sidecar doctor`. */
export interface Check {
  readonly what: string;
  readonly level: 'ok' | 'warn' | 'fail';
  /** What was found, one line. */
  readonly says: string;
  /** What to do about it. */
  readonly advice?: string;
}

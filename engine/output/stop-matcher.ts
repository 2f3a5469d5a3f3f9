/**
 * Finds the first of several stop strings in text that arrives in parts, in linear time (Knuth-Morris-Pratt, one
 * automaton per stop). Text that may be the beginning of a stop is buffered, at most the longest stop's length less
 * one.
 */
export class StopMatcher {
  readonly #automata: readonly StopString[];
  /** Text not yet passed on. */
  #buffered = '';
  #matched: string | undefined;
  #rest = '';

  /** `stops`: none empty. With no stops nothing is buffered. */
  constructor(stops: readonly string[]) {
    this.#automata = stops.map((stop) => new StopString(stop));
  }

  /** The stop that ended the text, once found. Text pushed after that is dropped. */
  get matched(): string | undefined {
    return this.#matched;
  }

  /** Text is buffered that may be the beginning of a stop. */
  get isBuffering(): boolean {
    return this.#buffered !== '';
  }

  /** Text after the stop in the same part. */
  get rest(): string {
    return this.#rest;
  }

  /** Adds text; returns what may be shown now. Of stops that end at the same position the longest wins. */
  push(text: string): string {
    if (this.#automata.length === 0) return text;
    if (this.#matched !== undefined) return '';
    const from = this.#buffered.length;
    this.#buffered += text;
    for (let i = from; i < this.#buffered.length; i++) {
      const unit = this.#buffered.charCodeAt(i);
      for (const automaton of this.#automata) {
        if (automaton.step(unit) && automaton.stop.length > (this.#matched?.length ?? 0))
          this.#matched = automaton.stop;
      }
      if (this.#matched !== undefined) {
        const shown = this.#buffered.slice(0, i + 1 - this.#matched.length);
        this.#rest = this.#buffered.slice(i + 1);
        this.#buffered = '';
        return shown;
      }
    }
    const keep = Math.max(...this.#automata.map((automaton) => automaton.depth));
    const shown = this.#buffered.slice(0, this.#buffered.length - keep);
    this.#buffered = this.#buffered.slice(this.#buffered.length - keep);
    return shown;
  }

  /** The text has ended: returns what was buffered. */
  end(): string {
    const rest = this.#buffered;
    this.#buffered = '';
    return rest;
  }
}

class StopString {
  readonly stop: string;
  /** #fail[i]: length of the longest proper prefix of stop[0..i] that is also its suffix. */
  readonly #fail: Uint16Array;
  /** Units of `stop` matched at the end of the text so far. */
  depth = 0;

  constructor(stop: string) {
    this.stop = stop;
    this.#fail = new Uint16Array(stop.length);
    for (let i = 1, k = 0; i < stop.length; i++) {
      while (k > 0 && stop.charCodeAt(i) !== stop.charCodeAt(k)) k = this.#fail[k - 1] ?? 0;
      if (stop.charCodeAt(i) === stop.charCodeAt(k)) k += 1;
      this.#fail[i] = k;
    }
  }

  /** Takes one UTF-16 unit; true when the stop is complete. */
  step(unit: number): boolean {
    while (this.depth > 0 && this.stop.charCodeAt(this.depth) !== unit) this.depth = this.#fail[this.depth - 1] ?? 0;
    if (this.stop.charCodeAt(this.depth) === unit) this.depth += 1;
    return this.depth === this.stop.length;
  }
}

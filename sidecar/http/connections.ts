import type { HttpResponse } from './uws.js';

/**
 * The open connections of one listener, idle ones included. A connection past the bound is closed at once, before
 * anything is read from it. Called when a connection opens and closes, not per request.
 */
export class Connections {
  readonly #most: number;
  readonly #refused: (() => void) | undefined;
  readonly #refusing: (() => boolean) | undefined;
  #open = 0;

  /**
   * `most`: open at once. `refused` is called for each connection that was closed for being past it, or because `refusing`
   * returned true.
   */
  constructor(most: number, refused?: () => void, refusing?: () => boolean) {
    this.#most = most;
    this.#refusing = refusing;
    this.#refused = refused;
  }

  get open(): number {
    return this.#open;
  }

  /** uWS's filter callback: `change` is 1 for an opened connection, and negative for a closed one. */
  changed(connection: Pick<HttpResponse, 'close'>, change: number): void {
    if (change < 0) {
      this.#open -= 1;
      return;
    }
    this.#open += 1;
    if (this.#open <= this.#most && this.#refusing?.() !== true) return;
    this.#refused?.();
    connection.close();
  }
}

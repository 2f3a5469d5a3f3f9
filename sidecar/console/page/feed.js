// The feed: server-sent events over fetch, since EventSource cannot send a key. One connection at a time; when it ends
// it is opened again, with increasing waits up to a bound. The key is kept in this object and sent only in one header,
// to this origin.

/** @typedef {import('../views.js').Snapshot} Snapshot */

/**
 * What the feed tells.
 *
 * @typedef {object} Hears
 * @property {(snapshot: Snapshot) => void} picture
 * @property {(why: string, retryAt: number) => void} lost The connection is gone and is made again then.
 * @property {(wrong: boolean) => void} key A key is asked for; `wrong`: that one is none.
 * @property {() => void} other The sidecar is of a version that this page cannot read; nothing more is tried.
 */

/** The version `v` of snapshots that this page can read. */
const VERSION = 3;

/** Waits between two attempts, ms: the first, and the longest. */
const FIRST_MS = 500;
const LONGEST_MS = 15_000;

/** Without a frame for this many intervals and ms, the connection is considered dead. */
const SILENT_INTERVALS = 3;
const SILENT_MS = 3000;

/** The longest time for an answer, ms: longer than the sidecar waits for another process that changes the keys file. */
const CALL_MS = 30_000;

/** A hidden page disconnects after this time, ms. */
const HIDDEN_MS = 60_000;

/** What a header can carry; fetch throws on other characters, as if the connection were lost. No key has any. */
const KEY = /^[\x21-\x7e]+$/;

/** The longest frame in characters; a longer one does not come from a sidecar. */
const LONGEST_FRAME = 8 * 1024 * 1024;

export class Feed {
  /** @type {string | undefined} */
  #key;
  /** @type {AbortController | undefined} */
  #open;
  #waitMs = FIRST_MS;
  #intervalMs = 1000;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #watchdog;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #leaving;
  /** It was stopped because the page was hidden. */
  #left = false;
  /** @type {string} */
  #url;
  /** @type {Hears} */
  #hears;
  /** @type {number} */
  #hiddenMs;

  /**
   * @param {string} url
   * @param {Hears} hears
   * @param {number} [hiddenMs] How long a hidden page stays connected, ms.
   */
  constructor(url, hears, hiddenMs = HIDDEN_MS) {
    this.#url = url;
    this.#hears = hears;
    this.#hiddenMs = hiddenMs;
  }

  /**
   * A request with the operator's key, and its answer in JSON; a status of 0: there is none.
   *
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   * @returns {Promise<{ readonly status: number; readonly body: any }>}
   */
  call = async (method, path, body) => {
    const headers = {
      ...(this.#key !== undefined && { Authorization: `Bearer ${this.#key}` }),
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
    };
    const sent = body === undefined ? null : JSON.stringify(body);
    try {
      const signal = AbortSignal.timeout(CALL_MS);
      const answer = await fetch(path, { method, headers, body: sent, cache: 'no-store', redirect: 'error', signal });
      return { status: answer.status, body: await answer.json() };
    } catch {
      return { status: 0, body: {} };
    }
  };

  /** @param {string} key */
  use(key) {
    if (!KEY.test(key)) {
      this.#hears.key(true);
      return;
    }
    this.#key = key;
    this.start();
  }

  /**
   * A page that stays hidden disconnects, and connects again once it is seen. Nothing is connected that was not before:
   * a page that asks for a key, or is of another version, waits for its reader.
   *
   * @param {boolean} hidden
   */
  hide(hidden) {
    clearTimeout(this.#leaving);
    if (!hidden) {
      if (this.#left || this.#timer !== undefined) this.start();
      return;
    }
    this.#leaving = setTimeout(() => {
      const left = this.#open !== undefined || this.#timer !== undefined;
      this.stop();
      this.#left = left;
    }, this.#hiddenMs);
  }

  /** Connects now, whatever the state. */
  start() {
    this.stop();
    const open = new AbortController();
    this.#open = open;
    void this.#run(open);
  }

  /** Closes the connection and cancels the next attempt. */
  stop() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watchdog);
    this.#timer = undefined;
    this.#left = false;
    this.#open?.abort();
    this.#open = undefined;
  }

  /** @param {AbortController} open */
  async #run(open) {
    let why = 'The sidecar ended the connection.';
    let waitMs = 0;
    try {
      this.#guard(open);
      const headers = this.#key === undefined ? {} : { Authorization: `Bearer ${this.#key}` };
      const response = await fetch(this.#url, { headers, cache: 'no-store', signal: open.signal, redirect: 'error' });
      if (this.#open !== open) return;
      if (response.status === 401) {
        const wrong = this.#key !== undefined;
        this.stop();
        this.#hears.key(wrong);
        return;
      }
      if (!response.ok || response.body === null) {
        waitMs = Number(response.headers.get('retry-after-ms') ?? 0);
        why =
          response.status === 429 ? 'All places to watch from are taken.' : `The sidecar answered ${response.status}.`;
      } else await this.#read(open, response.body);
    } catch {
      why = 'Connection lost.';
    }
    // Meanwhile another connection, or none, is wanted.
    if (this.#open !== open) return;
    this.stop();
    this.#again(why, waitMs);
  }

  /**
   * @param {AbortController} open
   * @param {ReadableStream<Uint8Array>} body
   */
  async #read(open, body) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.#open !== open) return;
      rest += decoder.decode(value, { stream: true });
      if (rest.length > LONGEST_FRAME) throw new Error('a frame without end');
      let end = rest.indexOf('\n\n');
      for (; end >= 0 && this.#open === open; end = rest.indexOf('\n\n')) {
        this.#frame(open, rest.slice(0, end));
        rest = rest.slice(end + 2);
      }
    }
  }

  /**
   * @param {AbortController} open
   * @param {string} frame
   */
  #frame(open, frame) {
    // Other fields of the stream are not used here.
    const line = frame.split('\n').find((text) => text.startsWith('data: '));
    if (line === undefined) return;
    const picture = /** @type {{ readonly v: number }} */ (JSON.parse(line.slice('data: '.length)));
    if (picture.v !== VERSION) {
      this.stop();
      this.#hears.other();
      return;
    }
    const snapshot = /** @type {Snapshot} */ (picture);
    this.#intervalMs = snapshot.intervalMs;
    this.#guard(open);
    this.#hears.picture(snapshot);
    // Counted only after it was shown, so that snapshots that cannot be shown also increase the wait.
    this.#waitMs = FIRST_MS;
  }

  /** @param {AbortController} open */
  #guard(open) {
    clearTimeout(this.#watchdog);
    this.#watchdog = setTimeout(() => open.abort(), SILENT_INTERVALS * this.#intervalMs + SILENT_MS);
  }

  /**
   * @param {string} why
   * @param {number} atLeastMs
   */
  #again(why, atLeastMs) {
    // Random, so that not all pages reconnect at once after a restart.
    const waitMs = Math.max(this.#waitMs * (0.75 + Math.random() / 2), atLeastMs);
    this.#waitMs = Math.min(this.#waitMs * 2, LONGEST_MS);
    this.#timer = setTimeout(() => this.start(), waitMs);
    this.#hears.lost(why, performance.now() + waitMs);
  }
}

/**
 * Debian’s Chromium without a window, controlled with the DevTools protocol through two pipes, so that no port is open.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { FLAGS } from './chromium.js';

/** Long enough for a loaded machine. */
const WAIT_MS = 60_000;

interface Owner {
  teardown(fn: () => Promise<void> | void): void;
}

interface Answer {
  readonly id?: number;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly message: string };
}

/** One node of the accessibility tree. */
export interface AxNode {
  readonly role: string;
  readonly name: string;
}

/** One tab. Closed when its test ends, with its browser and its profile. */
export class Tab {
  readonly #out: Writable;
  readonly #events = new EventEmitter().setMaxListeners(0);
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #session: string | undefined;
  #sent = 0;
  /** The page’s problems: blocked by its policy, thrown, logged as errors. */
  readonly complaints: string[] = [];
  /** URLs of all requests that it made. */
  readonly requested: string[] = [];

  private constructor(child: ChildProcess) {
    this.#out = child.stdio[3] as Writable;
    let rest = '';
    (child.stdio[4] as Readable).setEncoding('utf8').on('data', (text: string) => {
      const messages = (rest + text).split('\0');
      rest = messages.pop() ?? '';
      for (const message of messages) this.#hear(JSON.parse(message) as Answer);
    });
  }

  /** A new browser with one empty tab of so many CSS pixels. */
  static async open(t: Owner, size: { width: number; height: number }): Promise<Tab> {
    const profile = await mkdtemp(join(tmpdir(), 'ra-chromium-'));
    const child = spawn('chromium', [...FLAGS, '--remote-debugging-pipe', `--user-data-dir=${profile}`], {
      stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
      // In its own process group, since it has many processes.
      detached: true,
    });
    const gone = once(child, 'exit');
    t.teardown(async () => {
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGKILL');
      await gone;
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    });
    const tab = new Tab(child);
    const { targetId } = (await tab.send('Target.createTarget', { url: 'about:blank' })) as { targetId: string };
    const { sessionId } = (await tab.send('Target.attachToTarget', { targetId, flatten: true })) as {
      sessionId: string;
    };
    tab.#session = sessionId;
    for (const domain of ['Page', 'Runtime', 'Log', 'Network', 'Accessibility']) await tab.send(`${domain}.enable`);
    await tab.resize(size);
    return tab;
  }

  /** Sends one command of the protocol. Rejects with the browser’s error. */
  async send(method: string, params: object = {}): Promise<unknown> {
    const id = ++this.#sent;
    const answered = new Promise<Answer>((resolve) => this.#waiting.set(id, resolve));
    const session = this.#session === undefined ? {} : { sessionId: this.#session };
    this.#out.write(`${JSON.stringify({ id, method, params, ...session })}\0`);
    const { result, error } = await answered;
    if (error) throw new Error(`${method}: ${error.message}`);
    return result;
  }

  async resize({ width, height }: { width: number; height: number }): Promise<void> {
    const metrics = { width, height, deviceScaleFactor: 1, mobile: false };
    await this.send('Emulation.setDeviceMetricsOverride', metrics);
  }

  async goto(url: string): Promise<void> {
    const loaded = once(this.#events, 'Page.loadEventFired', { signal: AbortSignal.timeout(WAIT_MS) });
    await this.send('Page.navigate', { url });
    await loaded;
  }

  /** The value of an expression in the page, as JSON; a promise is awaited. */
  async value<T>(expression: string): Promise<T> {
    const { result, exceptionDetails } = (await this.send('Runtime.evaluate', {
      expression,
      returnByValue: true,
      awaitPromise: true,
    })) as { result: { value: T }; exceptionDetails?: { text: string; exception?: { description?: string } } };
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Resolves once an expression is true in the page, which is evaluated after each change of the document. */
  async until(expression: string): Promise<void> {
    const late = `reject(new Error('never true: ' + ${JSON.stringify(expression)} + '\\n' + document.body.innerText))`;
    await this.value(`new Promise((resolve, reject) => {
      const look = () => { if (${expression}) { watch.disconnect(); clearTimeout(late); resolve(true); } };
      const watch = new MutationObserver(look);
      const late = setTimeout(() => { watch.disconnect(); ${late}; }, ${WAIT_MS});
      watch.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
      look();
    })`);
  }

  /** Presses a key of the keyboard. */
  async press(key: string, code = key, text?: string): Promise<void> {
    const codes: Readonly<Record<string, number>> = {
      Tab: 9,
      Enter: 13,
      Escape: 27,
      ' ': 32,
      ArrowRight: 39,
      ArrowLeft: 37,
    };
    const event = { key, code, windowsVirtualKeyCode: codes[key] ?? 0 };
    await this.send('Input.dispatchKeyEvent', { type: 'keyDown', ...event, ...(text !== undefined && { text }) });
    await this.send('Input.dispatchKeyEvent', { type: 'keyUp', ...event });
  }

  /** Types into the focused element. */
  async type(text: string): Promise<void> {
    await this.send('Input.insertText', { text });
  }

  /** The accessibility tree of the page. */
  async accessibility(): Promise<AxNode[]> {
    const { nodes } = (await this.send('Accessibility.getFullAXTree')) as {
      nodes: readonly {
        readonly ignored: boolean;
        readonly role?: { readonly value: string };
        readonly name?: { readonly value: string };
      }[];
    };
    return nodes
      .filter(({ ignored }) => !ignored)
      .map(({ role, name }) => ({ role: role?.value ?? '', name: name?.value ?? '' }));
  }

  /** A screenshot of the page, PNG. */
  async screenshot(): Promise<Buffer> {
    const { data } = (await this.send('Page.captureScreenshot', { format: 'png' })) as { data: string };
    return Buffer.from(data, 'base64');
  }

  #hear(message: Answer): void {
    if (message.id !== undefined) {
      this.#waiting.get(message.id)?.(message);
      this.#waiting.delete(message.id);
      return;
    }
    this.#note(message);
    this.#events.emit(message.method ?? '', message.params);
  }

  #note({ method, params }: Answer): void {
    if (method === 'Network.requestWillBeSent') {
      this.requested.push((params as { request: { url: string } }).request.url);
    } else if (method === 'Runtime.exceptionThrown') {
      this.complaints.push(JSON.stringify(params));
    } else if (method === 'Log.entryAdded') {
      const { entry } = params as { entry: { level: string; text: string; source: string } };
      // Refused connections while the sidecar is stopped are expected.
      if (entry.level === 'error' && entry.source !== 'network') this.complaints.push(entry.text);
    }
  }
}

import type { Clock } from '../protocol/clock.js';
import type { GenerateJob, Output, ReplyLimit } from '../protocol/jobs.js';
import { promptLength } from '../protocol/prompt.js';
import type { Sampler } from '../scheduler/decoder.js';
import { Reply } from '../scheduler/reply.js';
import type { ModelTokens } from '../scheduler/job.js';
import { hasPlainStops, type Adapter, type StreamEvent, type StreamReader } from './adapter.js';
import { isBusy } from './server-answers.js';
import { EventStream, MAX_LINE_BYTES, type Frame } from './event-stream.js';
import type { Flight, FlightEvents } from './flights.js';
import type { OpenStream, ServerClient, StreamEnd } from './server-client.js';

/** How long a server may take to end a reply that is complete by our own reading, ms. */
const END_MS = 1000;

/** The server samples, and enforces the reply's grammar. */
const ELSEWHERE: Sampler = { constrain: () => true, release: () => undefined, dispose: () => undefined };

export interface ReplyFlightParts {
  readonly client: ServerClient;
  readonly adapter: Adapter;
  readonly tokens: ModelTokens;
  /** Of the vocabulary, in UTF-8; Infinity: there is no bound. */
  readonly longestTokenBytes: number;
  readonly clock: Clock;
}

type TokenEvent = Extract<StreamEvent, { kind: 'token' }>;
type Usage = Extract<StreamEvent, { kind: 'usage' }>;
type ReplyEvent = Exclude<StreamEvent, { kind: 'error' }>;

/** One reply of a chat: the server's tokens become text, thoughts and calls by our own code. */
export class ReplyFlight implements Flight {
  readonly name: string;
  readonly #parts: ReplyFlightParts;
  readonly #events: FlightEvents;
  readonly #reply: Reply;
  readonly #reader: StreamReader;
  readonly #frames: EventStream;
  readonly #stream: OpenStream;
  readonly #promptTokens: number;
  readonly #maxTokens: number;
  /** The server ends it when it is complete by our reading. */
  readonly #endsItself: boolean;
  #begun = false;
  /** What the server has sent while the reply waits for a limit: at most the events of its `maxTokens`. */
  readonly #unread: ReplyEvent[] = [];
  /** How the stream has ended meanwhile. */
  #unreadEnd: StreamEnd | undefined;
  #finish: 'stop' | 'length' | undefined;
  #usage: Usage | undefined;
  #over = false;
  #cancelEnd: (() => void) | undefined;

  constructor(
    id: number,
    job: GenerateJob,
    choice: number,
    name: string,
    parts: ReplyFlightParts,
    events: FlightEvents,
  ) {
    const { adapter, client, tokens } = parts;
    this.name = name;
    this.#parts = parts;
    this.#events = events;
    this.#reply = new Reply(id, choice, job, tokens, { sampler: () => ELSEWHERE });
    this.#promptTokens = promptLength(job.prompt);
    this.#maxTokens = job.maxTokens;
    this.#frames = new EventStream(MAX_LINE_BYTES + (adapter.lineTokenBytes ?? 0) * job.maxTokens);
    this.#reader = adapter.reader(this.#promptTokens);
    this.#endsItself = job.stops.length === 0 || (adapter.takesStops && hasPlainStops(job));
    const { path, body } = adapter.reply(job, choice, name);
    this.#stream = client.stream(path, body, { data: (bytes) => this.#read(bytes), end: (how) => this.#ended(how) });
  }

  get begun(): boolean {
    return this.#begun;
  }

  close(): void {
    this.#over = true;
    this.#cancelEnd?.();
    this.#stream.close();
  }

  #read(bytes: Uint8Array): void {
    for (const frame of this.#frames.push(bytes)) {
      if (this.#over) return;
      this.#take(frame);
    }
  }

  #take(frame: Frame): void {
    if (frame.kind === 'garbage') this.#fail('the server sent no JSON');
    if (frame.kind === 'long') this.#fail('the server sent too long a line');
    if (frame.kind !== 'json') return;
    let failure: string | undefined;
    for (const event of this.#reader.read(frame.value)) {
      if (event.kind === 'error') failure = event.why;
      else this.#unread.push(event);
    }
    this.#readOn(failure);
  }

  /** Sets how many tokens it may have. The server cannot be told: past them nothing of it is read. */
  limit(limit: ReplyLimit): void {
    if (this.#over) return;
    this.#reply.limit(limit);
    this.#readOn();
    const ended = this.#unreadEnd;
    if (ended === undefined || this.#unread.length > 0) return;
    this.#unreadEnd = undefined;
    this.#ended(ended);
  }

  /** Reads what the server has sent, up to the reply's limit. `failure`: what follows it. */
  #readOn(failure?: string): void {
    const outputs: Output[] = [];
    let failed: string | undefined;
    let isCut = false;
    for (;;) {
      const [event] = this.#unread;
      if (!event) {
        failed = failure;
        break;
      }
      failed = this.#impossible(event);
      if (failed !== undefined) break;
      const tokens = event.kind === 'token' ? 1 + (event.late?.tokens ?? 0) : 1;
      if (this.#reply.waits(tokens)) {
        this.#reply.ask(outputs, tokens);
        break;
      }
      if (event.kind === 'token') isCut = this.#reply.endLimited(outputs, tokens);
      this.#unread.shift();
      if (isCut) break;
      this.#apply(event, outputs);
    }
    const { over, tokens, most } = this.#reply;
    isCut ||= over && tokens === most && most < this.#maxTokens;
    if (outputs.length > 0) this.#events.outputs(outputs);
    if (failed !== undefined) this.#fail(failed);
    else if (this.#finish && this.#usage) this.#conclude(this.#finish, this.#usage);
    // The server would go on.
    else if (over) this.#awaitEnd(isCut || !this.#endsItself ? 0 : END_MS);
  }

  #apply(event: ReplyEvent, out: Output[]): void {
    switch (event.kind) {
      case 'begun':
        // SGLang reports it with each frame.
        if (!this.#begun) this.#events.moved('prompt');
        this.#begin(event.cached);
        return;
      case 'progress':
        this.#events.moved('prompt');
        return;
      case 'token':
        this.#events.moved('token');
        this.#begin(undefined);
        if (!this.#reply.over) this.#reply.accept(event.token, out, event.late);
        return;
      case 'usage':
        this.#usage = event;
        return;
      case 'finish':
        this.#finish = event.reason;
    }
  }

  /** Why the server's counts cannot be right: they are what callers are billed for. Undefined if they can. */
  #impossible(event: ReplyEvent): string | undefined {
    switch (event.kind) {
      case 'begun':
      case 'usage':
        if ((event.cached ?? 0) > this.#promptTokens) return 'a wrong count of cached tokens';
        return event.kind === 'usage' && !this.#isCount(event.completion) ? 'a wrong count of tokens' : undefined;
      case 'token':
        return this.#reply.over ? undefined : this.#impossiblyLate(event);
      default:
        return undefined;
    }
  }

  /** Past its end by our reading a reply is billed by our own count, and the server may compute further tokens. */
  #isCount(completion: number): boolean {
    const { tokens, over } = this.#reply;
    const most = Math.min(this.#maxTokens, tokens + this.#parts.adapter.mostUnseen);
    return over || (completion >= tokens && completion <= most);
  }

  /** The text of `n` tokens, each of which is a part of a character at least, has from `n` bytes to those of `n` longest tokens. */
  #impossiblyLate({ late }: TokenEvent): string | undefined {
    if (late === undefined) return undefined;
    const tokens = late.tokens + 1;
    if (this.#reply.tokens + tokens > this.#maxTokens) return 'more tokens than were asked for';
    // A byte that is no part of a character was replaced by one UTF-16 unit, which has three bytes in UTF-8.
    const { length } = late.text;
    const possible = tokens <= Buffer.byteLength(late.text) && length <= tokens * this.#parts.longestTokenBytes;
    return possible ? undefined : 'text that is not of its tokens';
  }

  #begin(cached: number | undefined): void {
    if (this.#begun) return;
    this.#begun = true;
    this.#events.begun(cached);
  }

  /** A known reason and usage: the only end that is a success. */
  #conclude(reason: 'stop' | 'length', { completion, cached }: Usage): void {
    this.#begin(cached);
    if (cached !== undefined) this.#events.cached(cached);
    if (!this.#reply.over) {
      const out: Output[] = [];
      // An end token, or a part of a character, that the server counts and has not sent may be past the limit.
      this.#reply.end(reason, Math.min(completion, this.#reply.most), out);
      this.#events.outputs(out);
    }
    this.#over = true;
    this.#cancelEnd?.();
    // The connection is kept if the answer ends now; one that does not is closed.
    this.#parts.clock.after(END_MS, () => this.#stream.close());
    this.#events.done();
  }

  #awaitEnd(ms: number): void {
    if (this.#cancelEnd) return;
    const leave = (): void => {
      if (this.#over) return;
      this.close();
      this.#events.complete();
    };
    this.#cancelEnd = this.#parts.clock.after(ms, leave);
  }

  #ended(how: StreamEnd): void {
    if (this.#over) return;
    if (this.#unread.length > 0) {
      this.#unreadEnd = how;
      return;
    }
    if (how.kind === 'status') {
      this.#over = true;
      this.#cancelEnd?.();
      if (isBusy(how.status)) this.#events.busy();
      else this.#events.failed(`the server answered ${how.status}`);
      return;
    }
    if (this.#reply.over) {
      this.close();
      this.#events.complete();
    } else if (how.kind === 'ended') this.#fail(this.#frames.unfinished ? 'half a frame' : 'a stream without an end');
    else {
      this.close();
      this.#events.broken();
    }
  }

  #fail(why: string): void {
    this.close();
    this.#events.failed(why);
  }
}

/** Batches of one process on a clock and an engine that the test drives: the runner and the stores are the real ones. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { CreditLedger } from '../../sidecar/access/credit.js';
import type { Caller, Identity } from '../../sidecar/access/identity.js';
import { QuotaLedger } from '../../sidecar/access/quotas.js';
import { SeatQueue } from '../../sidecar/admission/queue.js';
import { BatchRunner } from '../../sidecar/api/batch-runner.js';
import type { Services } from '../../sidecar/api/services.js';
import { BatchStore, type BatchRecord } from '../../sidecar/batch/batch-store.js';
import { FileStore } from '../../sidecar/batch/file-store.js';
import { Vault } from '../../sidecar/batch/records.js';
import type { ServiceTier } from '../../sidecar/domain/service-class.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';
import { PriceList } from '../../sidecar/usage/prices.js';
import { FakeClock } from './fake-clock.js';
import { FakeEngine } from './fake-engine.js';
import { ACME, FakeSpool } from './in-process.js';
import { routeServices } from './route-services.js';

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

/** After so many looks, and so many milliseconds, what a test waits for does not come. */
const MOST_LOOKS = 400_000;
/** Between two timers of a millisecond. */
const TURNS = 10;
const MOST_STEPS = 20_000;

/** A chat's body: tokens of its prompt, and of its reply at most, and the tier that it asks for. */
export interface AskedChat {
  readonly prompt?: number;
  readonly max?: number;
  readonly tier?: ServiceTier;
}

export function line(name: string, { prompt = 10, max = 100, tier }: AskedChat = {}): string {
  return JSON.stringify({
    custom_id: name,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: 'chat', prompt, max, ...(tier && { tier }) },
  });
}

export class BatchHarness {
  readonly clock: FakeClock;
  readonly engine = new FakeEngine({ generate: (job) => job.started().piece(5).finished().done() });
  readonly ledger: CreditLedger;
  readonly quotas: QuotaLedger;
  readonly spool = new FakeSpool();
  readonly files: FileStore;
  readonly store: BatchStore;
  readonly runner: BatchRunner;
  /** Bodies that were tokenized, each time. */
  tokenized = 0;
  /** How often what read the lines was made to forget them. */
  forgotten = 0;
  mayForget = true;
  /** Of each line that is checked. */
  onCheck: () => void | Promise<void> = () => undefined;
  /** A batch could not go on. */
  onFault = (fault: unknown): void => {
    throw fault;
  };
  /** What the keys file says of the key. */
  now: ReturnType<NonNullable<Identity['ofKey']>>;

  /** The folder of the files' content. */
  readonly contentDir: string;

  private constructor(
    {
      files,
      store,
      contentDir,
      granted,
    }: Pick<BatchHarness, 'files' | 'store' | 'contentDir'> & {
      readonly granted: bigint;
    },
    clock: FakeClock,
  ) {
    this.clock = clock;
    this.contentDir = contentDir;
    this.quotas = new QuotaLedger(clock, () => new Date(clock.now()));
    this.files = files;
    this.store = store;
    this.ledger = new CreditLedger(new Map([['acme', granted]]));
    this.ledger.open(new Map());
    const services = this.#services();
    this.runner = new BatchRunner({
      forget: () => {
        this.forgotten += 1;
        return this.mayForget;
      },
      clock,
      store,
      files,
      spool: { position: { segment: 1, offset: 0 }, read: async function* () {} },
      services: () => services,
      counted: (work) => work(),
      onFault: (fault) => this.onFault(fault),
    });
  }

  /** `granted`: acme's credit, picodollars; a token costs one. */
  static async start(t: Owner, { granted = 10n ** 12n, maxBytes = 1e9 } = {}): Promise<BatchHarness> {
    const dir = await mkdtemp(join(tmpdir(), 'ra-batches-'));
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const clock = new FakeClock();
    const [date, vault] = [(): Date => new Date(clock.now()), Vault.ofProcess()];
    const common = { clock, date, vault, onFault: (): void => undefined };
    const contentDir = join(dir, 'content');
    const files = await FileStore.open({
      ...common,
      dir: join(dir, 'files'),
      contentDir,
      maxBytes,
      isMemory: false,
    });
    const store = await BatchStore.open({ ...common, dir: join(dir, 'batches'), files });
    const harness = new BatchHarness({ files, store, contentDir, granted }, clock);
    t.teardown(async () => {
      await harness.runner.close();
      await files.end();
    });
    return harness;
  }

  /** Creates a batch of these lines. */
  async submit(lines: readonly string[], caller: Partial<Caller> = {}): Promise<BatchRecord> {
    const by = { ...ACME, ...caller };
    const file = await this.files.create(by.account);
    file.append(Buffer.from(lines.join('\n')));
    const { id } = await file.finish({ name: 'in', lifeS: 86_400 });
    const request = { inputFile: id, endpoint: '/v1/chat/completions', metadata: null } as const;
    const record = await this.store.create(by, request, { segment: 1, offset: 0 });
    if (typeof record === 'string') throw new Error(`not created: ${record}`);
    this.runner.runAll();
    return record;
  }

  /**
   * Resolves once something is so, which the disk and the event loop bring about. `stepMs`: meanwhile the clock goes on by so much each
   * millisecond.
   */
  async until(isSo: () => boolean, what: string, stepMs = 0): Promise<void> {
    for (let looks = 0; !isSo(); looks += 1) {
      if (looks > (stepMs === 0 ? MOST_LOOKS : MOST_STEPS)) throw new Error(`not seen: ${what}`);
      // Turns of the event loop alone would take the processor time that the disk needs.
      const turns = stepMs === 0 && looks % TURNS !== 0;
      await new Promise<void>((resolve) => (turns ? setImmediate(resolve) : setTimeout(resolve, 1)));
      this.clock.advance(stepMs);
    }
  }

  /** The same, once a batch has this status. */
  async has({ id }: BatchRecord, status: BatchRecord['status']): Promise<BatchRecord> {
    await this.until(() => this.store.get(id)?.status === status, `${status} and not ${this.store.get(id)?.status}`);
    return this.store.get(id) as BatchRecord;
  }

  /** The lines of an answers' file, in the order of their names. */
  async answersOf({ account }: BatchRecord, id: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
    const record = this.files.find(account, id);
    const reader = record && (await this.files.read(record));
    if (!reader) return [];
    let text = '';
    for await (const part of reader.contents()) text += part.toString();
    await reader.close();
    const lines = text.split('\n').filter((each) => each !== '');
    return lines
      .map((each) => JSON.parse(each) as { custom_id: string })
      .sort((a, b) => Number(a.custom_id) - Number(b.custom_id));
  }

  get closes(): readonly UsageRecord[] {
    return this.spool.records.filter(({ kind }) => kind === 'close');
  }

  #services(): Services {
    const { clock, engine } = this;
    const queue = new SeatQueue({
      clock,
      random: () => 0,
      config: { maxWaitMs: 10_000, waitingPerSeat: 8, waitingBytes: 1e6 },
      seats: 4,
      headroom: 0.5,
    });
    queue.resume(4);
    return routeServices(clock, {
      date: () => new Date(clock.now()),
      identity: { resolve: () => Promise.resolve(ACME), ofKey: () => this.now },
      models: new Map([
        [
          'chat',
          { id: 'chat', kind: 'chat', ownedBy: 'test', created: 0, engine, scopeOf: (account) => account, queue },
        ],
      ]),
      prompts: {
        open: (_form, { bytes }) => {
          const {
            prompt = 0,
            max = 0,
            tier,
          } = JSON.parse(Buffer.from(bytes ?? new Uint8Array()).toString()) as AskedChat;
          return {
            check: async () => {
              await this.onCheck();
              const sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0 };
              const replies = {
                stream: false,
                includeUsage: false,
                n: 1,
                maxTokens: max,
                stops: [],
                jsonObject: false,
                ...(tier && { tier }),
              };
              return { kind: 'checked', params: { route: 'chat', model: 'chat', ...replies, ...sampling } };
            },
            tokenize: () => {
              this.tokenized += 1;
              return Promise.resolve({ kind: 'chat', prompt: tokenPrompt(new Uint32Array(prompt)) });
            },
            close: () => undefined,
          };
        },
      },
      spool: this.spool,
      pricing: PRICES,
      credit: this.ledger,
      quotas: this.quotas,
    });
  }
}

const RATES = { input: 1n, cachedInput: 1n, output: 1n };
const PRICES = new PriceList([
  {
    version: 'p',
    effective: 0,
    decisions: RATES,
    chat: new Map([['chat', { ...RATES, tiers: { priority: { input: 2n, cachedInput: 2n, output: 2n } } }]]),
    batch: new Map([['chat', RATES]]),
  },
]);

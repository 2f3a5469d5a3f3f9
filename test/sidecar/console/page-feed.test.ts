/** How the page follows its feed: which frames it accepts, when it tries again, and when it gives up. */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t, { type Test } from 'tap';
import { deferred } from '../../support/http-server.js';
import type { Snapshot } from '../../../sidecar/console/views.js';
import { sourceRoot } from '../../support/source-root.js';

interface Hears {
  picture(snapshot: { readonly n: number }): void;
  lost(why: string, retryAt: number): void;
  key(wrong: boolean): void;
  other(): void;
}

interface PageFeed {
  start(): void;
  stop(): void;
  use(key: string): void;
  hide(hidden: boolean): void;
}

const { Feed } = (await import(pathToFileURL(join(sourceRoot, 'sidecar/console/page/feed.js')).href)) as {
  readonly Feed: new (url: string, hears: Hears, hiddenMs?: number) => PageFeed;
};

/** The version that the sidecar sends; the compiler checks it. */
const VERSION: Snapshot['v'] = 3;

const picture = (n: number, v: number = VERSION): string => `data: ${JSON.stringify({ v, n, intervalMs: 250 })}\n\n`;

/** A page’s feed from a server with scripted answers. `heard` has its events, in order. When hidden it leaves at once. */
async function harness(
  t: Test,
  answer: (response: ServerResponse, asked: number, key: string | undefined) => void,
  shows: (n: number) => void = () => undefined,
) {
  const closed = deferred();
  let asked = 0;
  const server = createServer((request, response) => {
    response.once('close', closed.resolve);
    answer(response, (asked += 1), request.headers.authorization);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const waiting: ((what: string) => void)[] = [];
  const reported: string[] = [];
  const hear = (what: string): void => {
    const next = waiting.shift();
    if (next) next(what);
    else reported.push(what);
  };
  const feed = new Feed(
    `http://127.0.0.1:${(server.address() as AddressInfo).port}/console/events`,
    {
      picture: ({ n }) => {
        hear(`picture ${n}`);
        shows(n);
      },
      lost: (why, retryAt) => hear(`lost, again in ${Math.round(retryAt - performance.now())} ms: ${why}`),
      key: (wrong) => hear(wrong ? 'wrong key' : 'key'),
      other: () => hear('other'),
    },
    0,
  );
  t.teardown(() => {
    feed.stop();
    server.closeAllConnections();
    server.close();
  });
  const heard = (): Promise<string> => {
    const first = reported.shift();
    return first === undefined ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve(first);
  };
  /** How long it waits. */
  const lost = async (): Promise<number> => Number(/^lost, again in (\d+) ms/.exec(await heard())?.[1]);
  return { feed, heard, lost, closed: closed.promise, asked: () => asked };
}

t.test('snapshots are assembled however they are cut; other frames are ignored', async (t) => {
  const { feed, heard } = await harness(t, (response) => {
    const bytes = Buffer.from(`: keep-alive\n\nid: 1\n${picture(1)}${picture(2)}`);
    for (let i = 0; i < bytes.length; i += 7) response.write(bytes.subarray(i, i + 7));
  });
  feed.start();
  t.strictSame([await heard(), await heard()], ['picture 1', 'picture 2']);
});

t.test('a snapshot of an unknown version ends the feed: the page does not try again', async (t) => {
  const { feed, heard, asked, closed } = await harness(t, (response) => {
    response.write(picture(1) + picture(2, VERSION + 1) + picture(3));
  });
  feed.start();
  t.strictSame([await heard(), await heard()], ['picture 1', 'other']);
  await closed;
  t.equal(asked(), 1, 'and its place is free');
});

t.test('a snapshot that cannot be shown counts as a lost feed, which is retried with growing waits', async (t) => {
  const { feed, heard, lost } = await harness(
    t,
    (response) => response.end(picture(1)),
    () => {
      throw new Error('no such field');
    },
  );
  feed.start();
  await heard();
  const first = await lost();
  await heard();
  const second = await lost();
  t.ok(first >= 370 && first <= 630, `${first} ms`);
  t.ok(second >= 740, `${second} ms`);
});

t.test('a shown one resets the wait', async (t) => {
  const { feed, heard, lost } = await harness(t, (response, asked) => {
    if (asked === 1) response.writeHead(500).end();
    else response.end(picture(asked));
  });
  feed.start();
  t.ok((await lost()) <= 630);
  t.equal(await heard(), 'picture 2');
  t.ok((await lost()) <= 630);
});

t.test('when refused it reconnects after Retry-After', async (t) => {
  const { feed, lost } = await harness(t, (response) => response.writeHead(429, { 'retry-after-ms': '10000' }).end());
  feed.start();
  t.ok((await lost()) >= 9_990);
});

t.test('a key is requested, tried, and used', async (t) => {
  const { feed, heard } = await harness(t, (response, asked, key) => {
    if (key === 'Bearer good') response.write(picture(asked));
    else response.writeHead(401).end();
  });
  feed.start();
  t.equal(await heard(), 'key');
  feed.use('bad');
  t.equal(await heard(), 'wrong key');
  feed.use('good');
  t.equal(await heard(), 'picture 3');
});

t.test('a page that stays hidden disconnects, and connects again once it is seen', async (t) => {
  const { feed, heard, closed } = await harness(t, (response, asked) => response.write(picture(asked)));
  feed.start();
  t.equal(await heard(), 'picture 1');
  feed.hide(true);
  await closed;
  feed.hide(false);
  t.equal(await heard(), 'picture 2');
});

t.test('one that waits for its next attempt makes it once it is seen', async (t) => {
  const { feed, heard, lost } = await harness(t, (response, asked) => {
    if (asked === 1) response.writeHead(429, { 'retry-after-ms': '10000' }).end();
    else response.write(picture(asked));
  });
  feed.start();
  t.ok((await lost()) >= 9_990);
  feed.hide(false);
  t.equal(await heard(), 'picture 2');
});

t.test('one that had given up stays so, hidden or not', async (t) => {
  const { feed, heard, asked } = await harness(t, (response) => response.write(picture(1, VERSION + 1)));
  feed.start();
  t.equal(await heard(), 'other');
  feed.hide(true);
  // After the feed's own timer, which was set before it.
  await new Promise((resolve) => setTimeout(resolve, 0));
  const fetched = t.capture(globalThis, 'fetch');
  feed.hide(false);
  t.same(fetched(), []);
  t.equal(asked(), 1);
});

t.test('a key with a character that no header carries is wrong, and not sent', async (t) => {
  const { feed, heard, asked } = await harness(t, (response) => response.writeHead(401).end());
  feed.start();
  t.equal(await heard(), 'key');
  for (const key of ['good\u200b', 'a b', 'caf\u00e9']) {
    feed.use(key);
    t.equal(await heard(), 'wrong key', JSON.stringify(key));
  }
  t.equal(asked(), 1);
});

import t from 'tap';
import { JoinedWriter, type ReplyWriter, StreamKeepAlive } from '../../../sidecar/api/replies.js';
import { FakeClock } from '../../support/fake-clock.js';

const INTERVAL_MS = 50;
const USAGE = { promptTokens: 1, cachedTokens: 0, completionTokens: 1, reasoningTokens: 0 };

function joining(): { clock: FakeClock; writer: JoinedWriter; lines: string[] } {
  const lines: string[] = [];
  const clock = new FakeClock();
  const into: ReplyWriter = {
    madeBy: (version) => lines.push(`by ${version}`),
    piece: ({ choice, channel, text, tokens }) => lines.push(`${choice} ${channel} ${text} ${tokens}`),
    call: ({ choice, index, name, arguments: part }) => lines.push(`${choice} call ${index} ${name ?? '-'} ${part}`),
    finished: ({ choice }) => lines.push(`${choice} finished`),
    done: () => lines.push('done'),
  };
  return { clock, writer: new JoinedWriter(into, clock, INTERVAL_MS), lines };
}

const end = { reason: 'stop', completionTokens: 1, reasoningTokens: 0 } as const;

t.test('the first token at once, the next ones joined once an interval', async (t) => {
  const { clock, writer, lines } = joining();
  writer.madeBy('v');
  writer.piece({ choice: 0, channel: 'content', text: 'a', tokens: 1 });
  t.strictSame(lines.splice(0), ['by v', '0 content a 1']);
  for (const text of ['b', 'c', 'd']) writer.piece({ choice: 0, channel: 'content', text, tokens: 2 });
  clock.advance(INTERVAL_MS - 1);
  t.strictSame(lines, []);
  clock.advance(1);
  t.strictSame(lines.splice(0), ['0 content bcd 2']);
  writer.piece({ choice: 0, channel: 'content', text: 'e', tokens: 5 });
  t.strictSame(lines, [], 'the next interval has begun');
  clock.advance(INTERVAL_MS);
  t.strictSame(lines.splice(0), ['0 content e 5']);
  clock.advance(INTERVAL_MS);
  writer.piece({ choice: 0, channel: 'content', text: 'f', tokens: 6 });
  t.strictSame(lines, ['0 content f 6'], 'after an interval without a token the next is sent at once');
  writer.close();
  t.equal(clock.pending, 0);
});

t.test('replies, channels and calls stay apart, and keep their order', async (t) => {
  const { clock, writer, lines } = joining();
  writer.piece({ choice: 0, channel: 'reasoning', text: '-', tokens: 1 });
  lines.splice(0);
  writer.piece({ choice: 0, channel: 'reasoning', text: 'a', tokens: 2 });
  writer.piece({ choice: 1, channel: 'content', text: 'x', tokens: 1 });
  writer.piece({ choice: 0, channel: 'content', text: 'b', tokens: 3 });
  writer.piece({ choice: 1, channel: 'content', text: 'y', tokens: 2 });
  writer.call({ choice: 0, index: 0, name: 'f', arguments: '{', tokens: 4 });
  writer.call({ choice: 0, index: 0, arguments: '}', tokens: 5 });
  writer.call({ choice: 0, index: 1, name: 'f', arguments: '{}', tokens: 6 });
  clock.advance(INTERVAL_MS);
  t.strictSame(
    lines.filter((line) => line.startsWith('0')),
    ['0 reasoning a 2', '0 content b 3', '0 call 0 f {}', '0 call 1 f {}'],
  );
  t.strictSame(
    lines.filter((line) => line.startsWith('1')),
    ['1 content xy 2'],
  );
});

t.test('the end of a reply, and an error, come after what waited', async (t) => {
  const { writer, lines } = joining();
  writer.piece({ choice: 0, channel: 'content', text: 'a', tokens: 1 });
  writer.piece({ choice: 0, channel: 'content', text: 'b', tokens: 2 });
  writer.finished({ choice: 0, ...end });
  writer.piece({ choice: 1, channel: 'content', text: 'c', tokens: 1 });
  writer.done(USAGE);
  t.strictSame(lines.splice(0), ['0 content a 1', '0 content b 2', '0 finished', '1 content c 1', 'done']);
  writer.piece({ choice: 2, channel: 'content', text: 'd', tokens: 1 });
  writer.flush();
  t.strictSame(lines, ['2 content d 1']);
});

t.test('no silence is longer than the interval', async (t) => {
  const clock = new FakeClock();
  const at: number[] = [];
  const keepAlive = new StreamKeepAlive(clock, 100, () => at.push(clock.now()));
  const from = clock.now();
  const since = (): number[] => at.map((time) => time - from);
  clock.advance(100);
  t.strictSame(since(), [100], 'of a stream that has sent nothing yet');
  clock.advance(10);
  keepAlive.sent();
  clock.advance(99);
  t.strictSame(since(), [100], 'counted from what was sent last');
  clock.advance(1);
  t.strictSame(since(), [100, 210]);
  clock.advance(250);
  t.strictSame(since(), [100, 210, 310, 410]);
  keepAlive.close();
  clock.advance(1000);
  t.equal(at.length, 4);
});

t.test('it may be closed by what it calls', async (t) => {
  const clock = new FakeClock();
  let calls = 0;
  const keepAlive: StreamKeepAlive = new StreamKeepAlive(clock, 100, () => {
    calls += 1;
    keepAlive.close();
  });
  clock.advance(1000);
  t.equal(calls, 1);
  t.equal(clock.pending, 0);
});

t.test('a place in the queue is told at most every 2 s, in place of a keep-alive', async (t) => {
  for (const [intervalMs, quiet] of [
    [15_000, [19_000, 34_000]],
    [1000, [1000, 3000, 5000, 6000, 7000, 8000]],
  ] as const) {
    const clock = new FakeClock();
    const [told, idle]: [number[], number[]] = [[], []];
    const tell = (): boolean => clock.now() <= 5000 && told.push(clock.now()) > 0;
    const keepAlive = new StreamKeepAlive(clock, intervalMs, () => idle.push(clock.now()), tell);
    clock.advance(intervalMs === 1000 ? 8000 : 40_000);
    keepAlive.close();
    t.strictSame(told, [2000, 4000]);
    t.strictSame(idle, quiet);
    t.equal(clock.pending, 0);
  }
});

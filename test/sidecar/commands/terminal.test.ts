import t from 'tap';
import { UsageError } from '../../../sidecar/commands/command.js';
import { bytesOf, columns, Progress, rate, size, wholeOf } from '../../../sidecar/commands/terminal.js';
import { FakeClock } from '../../support/fake-clock.js';

t.test('sizes, numbers and columns', async (t) => {
  t.strictSame([0, 1023, 1024, 1.5 * 2 ** 30, 2 ** 52].map(size), ['0 B', '1,023 B', '1 KiB', '1.5 GiB', '4,096 TiB']);
  t.strictSame(
    ['24GiB', '24g', '1.5 MiB', '2T'].map((text) => bytesOf('--memory', text)),
    [24 * 2 ** 30, 24 * 2 ** 30, 1.5 * 2 ** 20, 2 * 2 ** 40],
  );
  for (const text of ['24', 'GiB', '-1GiB', '1e3GiB', '12345678GiB', '5PiB'])
    t.throws(() => bytesOf('--memory', text), UsageError, text);
  t.equal(wholeOf('--seats', '8', 1, 8), 8);
  for (const text of ['0', '9', '1.5', 'x', '']) t.throws(() => wholeOf('--seats', text, 1, 8), UsageError, text);
  t.equal(
    columns([
      ['A', 'BB'],
      ['long', 'x'],
      ['s', ''],
    ]),
    'A     BB\nlong  x\ns\n',
  );
  t.strictSame([1234.5, 123.4, 12.34, 0.01234].map(rate), ['1,235', '123', '12.3', '0.0123']);
});

function terminal(more: { isTTY?: boolean; columns?: number }): { text: string; write(text: string): void } {
  return {
    text: '',
    write(part: string) {
      this.text += part;
    },
    ...more,
  };
}

t.test('without a terminal nothing is drawn', async (t) => {
  const pipe = terminal({});
  const bar = new Progress(new FakeClock(), pipe);
  bar.show('fetching', 0.5);
  bar.clear();
  t.equal(pipe.text, '');
});

t.test('one line, redrawn at most ten times a second, and removed at the end', async (t) => {
  const clock = new FakeClock();
  const screen = terminal({ isTTY: true, columns: 60 });
  const bar = new Progress(clock, screen);
  bar.clear();
  t.equal(screen.text, '', 'nothing to remove yet');
  bar.show('fetching', 0.5, 'of 4 MiB');
  t.equal(screen.text, `\r\u001b[Kfetching [${'#'.repeat(17)}${' '.repeat(16)}] 50% of 4 MiB`);
  t.ok(screen.text.length - 4 < 60, 'it fits the line');
  const { text } = screen;
  clock.advance(99);
  bar.show('fetching', 0.6);
  t.equal(screen.text, text);
  clock.advance(1);
  bar.show('fetching', 2);
  t.match(screen.text.slice(text.length), / 100% $/);
  bar.clear();
  bar.clear();
  t.ok(screen.text.endsWith('100% \r\u001b[K'));
});

t.test('a narrow terminal has no bar, but the number', async (t) => {
  const screen = terminal({ isTTY: true, columns: 12 });
  new Progress(new FakeClock(), screen).show('fetching', 0.25);
  t.equal(screen.text, '\r\u001b[Kfetching 25% ');
});

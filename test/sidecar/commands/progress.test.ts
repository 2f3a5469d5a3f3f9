import t from 'tap';
import { Progress } from '../../../sidecar/commands/progress.js';
import { FakeClock } from '../../support/fake-clock.js';

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

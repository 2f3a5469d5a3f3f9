import t from 'tap';
import { Agenda } from '../../../bench/admission/agenda.js';

t.test('events run in the order of their times, then of their creation, each once', async (t) => {
  const agenda = new Agenda();
  const times = Array.from({ length: 200 }, (_, i) => (i * 37) % 50);
  const ran: { at: number; made: number }[] = [];
  times.forEach((at, made) => agenda.after(at, () => ran.push({ at: agenda.now(), made })));
  while (agenda.step(Infinity));
  const expected = times.map((at, made) => ({ at, made })).sort((a, b) => a.at - b.at || a.made - b.made);
  t.strictSame(ran, expected);
});

t.test('an event may add others, also for the current time; a cancelled event does not run', async (t) => {
  const agenda = new Agenda();
  const ran: string[] = [];
  const cancel = agenda.after(20, () => ran.push('cancelled'));
  agenda.after(10, () => {
    cancel();
    agenda.after(0, () => ran.push(`at once, ${agenda.now()}`));
    agenda.after(15, () => ran.push(`later, ${agenda.now()}`));
  });
  t.strictSame(ran, []);
  while (agenda.step(Infinity));
  t.strictSame(ran, ['at once, 10', 'later, 25']);
});

t.test('run() stops before events later than the given time', async (t) => {
  const agenda = new Agenda();
  let ran = 0;
  agenda.after(10, () => (ran += 1));
  agenda.after(11, () => (ran += 1));
  t.equal(agenda.step(10), true);
  t.equal(agenda.step(10), false);
  t.equal(ran, 1);
  t.equal(agenda.now(), 10);
  t.equal(agenda.step(11), true);
});

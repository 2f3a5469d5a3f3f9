import t from 'tap';
import { sessionNameOf, timeAllowed } from '../../../sidecar/api/preflight.js';

function allowed(header: string | undefined, timeoutMs: number, vouched: boolean): number | undefined {
  const head = { header: (name: string) => (name === 'x-ra-deadline-ms' ? header : undefined) };
  return timeAllowed(head, vouched ? { vouched } : {}, { timeoutMs });
}

t.test('the header is ignored without a gateway', async (t) => {
  t.equal(allowed('50', 0, false), undefined);
  t.equal(allowed('50', 1000, false), 1000);
});

t.test('the shorter of two times counts', async (t) => {
  t.equal(allowed(undefined, 0, true), undefined);
  t.equal(allowed(undefined, 1000, true), 1000);
  t.equal(allowed('50', 0, true), 50);
  t.equal(allowed('50', 1000, true), 50);
  t.equal(allowed('5000', 1000, true), 1000);
});

t.test('a gateway sends 0 for a time that is over', async (t) => {
  t.equal(allowed('0', 1000, true), 0);
  t.equal(allowed('0', 0, true), 0);
  t.equal(allowed('0', 0, false), undefined);
});

t.test('a value that is no integer of milliseconds is ignored', async (t) => {
  for (const header of ['', '00', '-5', '-0', '1.5', '1e3', ' 50', '50, 60', 'soon', '123456789'])
    t.equal(allowed(header, 1000, true), 1000, header);
});

t.test(
  'an id names a session of its account alone, and the one in the body goes before that in a header',
  async (t) => {
    const head = { header: (name: string) => (name === 'x-session-id' ? 'one' : undefined) };
    const none = { header: () => undefined };
    const name = sessionNameOf(head, {}, 'a');
    t.equal(sessionNameOf(none, { sessionId: 'one' }, 'a'), name);
    t.equal(sessionNameOf(head, { sessionId: 'two' }, 'a'), sessionNameOf(none, { sessionId: 'two' }, 'a'));
    t.not(sessionNameOf(head, {}, 'b'), name);
    t.notMatch(name, /one/, 'the id itself is not kept');
    t.equal(sessionNameOf(none, {}, 'a'), undefined);
    t.equal(sessionNameOf({ header: () => '' }, {}, 'a'), undefined);
  },
);

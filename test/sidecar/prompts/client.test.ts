import t from 'tap';
import { longestSilenceMs } from '../../../sidecar/prompts/client.js';

t.test('a host gets additional time for the bytes of a body', async (t) => {
  t.equal(longestSilenceMs(2000, 0), 2000);
  t.equal(longestSilenceMs(2000, 64 * 1024), 2002);
  t.equal(longestSilenceMs(2000, 80 << 20), 2000 + 2560);
});

/** The recorded greedy replies still equal llama-server’s. Needs `make peers`. */
import t from 'tap';
import { readReplies, recordReplies } from '../goldens/replies.js';

t.test('llama-server replies as recorded, for each architecture family', async (t) => {
  t.same(await recordReplies(), await readReplies(), 'otherwise: make goldens');
});

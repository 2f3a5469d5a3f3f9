/** A part of `make goldens`: writes llama-server's greedy reply for a model of each architecture family. */
import { writeFile } from 'node:fs/promises';
import { recordReplies, REPLIES_FILE } from './replies.js';

await writeFile(REPLIES_FILE, `${JSON.stringify(await recordReplies(), null, 2)}\n`);

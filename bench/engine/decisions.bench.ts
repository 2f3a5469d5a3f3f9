/** Ten questions about one input on a CPU. */
import { decisionRows } from '../support/decision-rows.js';
import { random150m } from '../support/models.js';
import { keep } from '../support/results.js';

const { rows, about } = await decisionRows({ file: await random150m(), threads: 1, gpu: false });
await keep('decisions', {
  title: 'Ten questions about one input',
  about: about('the 150m recipe, 1 compute thread'),
  rows,
});

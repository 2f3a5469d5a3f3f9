/**
 * Ten questions about one input on a GPU: the arguments are those of case.ts.
 *
 *     node dist/bench/gpu/decisions.bench.js 8b cuda
 */
import { decisionRows } from '../support/decision-rows.js';
import { gpuCase } from './case.js';

const { model, file, gpu, threads, keep } = await gpuCase();
const { rows, about } = await decisionRows({ file, threads, gpu });
await keep('decisions', 'Ten questions about one input', about(`the ${model} recipe`).join(' '), rows);

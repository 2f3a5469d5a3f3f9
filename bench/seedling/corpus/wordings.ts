/**
 * The corpus's texts (wordings.json), by the module that uses them. Of every list that `Draw.pick` draws from, each fifth entry is kept
 * for evaluation (draw.ts), so the order of the entries counts.
 */
import { readFileSync } from 'node:fs';
import type texts from './wordings.json';

/** From dist/bench/seedling/corpus. */
const FILE = new URL('../../../../bench/seedling/corpus/wordings.json', import.meta.url);

export const WORDINGS = JSON.parse(readFileSync(FILE, 'utf8')) as typeof texts;

#!/usr/bin/env node
/**
 * Gives an exported file the present chat template, without training: the weights stay as they are.
 *
 *   node dist/bench/seedling/put-template.js FILE
 */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { SEEDLING_TEMPLATE, withTemplate } from './template.js';

const [file] = process.argv.slice(2);
if (file === undefined) throw new Error('usage: put-template FILE');
const partial = `${file}.partial-${process.pid}`;
await writeFile(partial, await withTemplate(file, await readFile(file), SEEDLING_TEMPLATE), { flag: 'wx' });
await rename(partial, file);

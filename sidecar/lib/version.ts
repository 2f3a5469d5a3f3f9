import { readFileSync } from 'node:fs';

/** Beside dist/ in a clone, in the npm package and in the image. */
const MANIFEST = new URL('../../../package.json', import.meta.url);

export const VERSION = (JSON.parse(readFileSync(MANIFEST, 'utf8')) as { readonly version: string }).version;

import { readFile } from 'node:fs/promises';
import t from 'tap';
import { readHead, type GgufHead } from '../../../engine/llama/gguf-head.js';
import { testModel } from '../../support/models.js';

const model = await readFile(await testModel());

function head(bytes: Buffer): GgufHead {
  return readHead({ size: bytes.length, read: (offset, length) => bytes.subarray(offset, offset + length) });
}

t.test('a valid file: its kind and its length', (t) => {
  t.match(head(model), { kind: 'head', architecture: 'llama', tensors: 21 });
  t.end();
});

t.test('a cut at any place up to the start of the last tensor is found', (t) => {
  const from = head(model);
  t.equal(from.kind, 'head');
  // Every byte of the first kilobyte, then every prime step of the rest; the last tensor is the output matrix.
  for (let length = 0; length < model.length - 210_000; length += length < 1024 ? 1 : 997) {
    if (head(model.subarray(0, length)).kind !== 'bad') t.fail(`cut at ${length}`);
  }
  t.end();
});

t.test('a flipped byte neither makes the walk long nor makes it throw', (t) => {
  let reads = 0;
  const end = 60_000;
  // One copy for all: a copy for each flip took longer than the walks.
  const bytes = Buffer.from(model);
  for (let at = 0; at < end; at += at < 2048 ? 1 : 211) {
    for (const value of [0x00, 0x7f, 0xff]) {
      bytes[at] = value;
      readHead({
        size: bytes.length,
        read: (offset, length) => {
          if (offset < 0 || offset + length > bytes.length) t.fail(`read past the end after byte ${at}`);
          reads += 1;
          return bytes.subarray(offset, offset + length);
        },
      });
    }
    bytes[at] = model[at] ?? 0;
  }
  t.ok(reads < 20_000, `${reads} reads`);
  t.end();
});

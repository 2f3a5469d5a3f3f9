import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import {
  aligned,
  encodeHead,
  tensorBytes,
  type MetadataValue,
  type TensorDescription,
} from '../../../bench/models/gguf-format.js';
import { PARTIAL_MARK, writeGguf, type TensorSource } from '../../../bench/models/gguf-writer.js';
import { readGgufFileInfo } from '../../../engine/llama/package.js';

const METADATA = new Map<string, MetadataValue>([
  ['general.architecture', { type: 'string', value: 'llama' }],
  ['general.name', { type: 'string', value: 'größer 😀' }],
  ['test.uint32', { type: 'uint32', value: 0xffff_ffff }],
  ['test.int32', { type: 'int32', value: -7 }],
  ['test.float32', { type: 'float32', value: 0.25 }],
  ['test.yes', { type: 'bool', value: true }],
  ['test.no', { type: 'bool', value: false }],
  ['test.uint64', { type: 'uint64', value: 2n ** 63n + 1n }],
  ['test.strings', { type: 'strings', value: ['', 'Ġthe', '中'] }],
  ['test.int32s', { type: 'int32s', value: [1, -1] }],
  ['test.float32s', { type: 'float32s', value: [-0.5, 1e10] }],
  ['test.uint8s', { type: 'uint8s', value: [0, 255] }],
]);

function contents(tensor: TensorDescription): Uint8Array {
  return Uint8Array.from({ length: tensorBytes(tensor) }, (_, i) => i + tensor.name.length);
}

function counting(name: string, type: TensorSource['type'], dimensions: number[], pieces = 1): TensorSource {
  const bytes = contents({ name, type, dimensions });
  return {
    name,
    type,
    dimensions,
    *data() {
      // One buffer for all pieces, as a source may do.
      const buffer = new Uint8Array(Math.ceil(bytes.length / pieces));
      for (let from = 0; from < bytes.length; from += buffer.length) {
        const piece = bytes.subarray(from, from + buffer.length);
        buffer.set(piece);
        yield buffer.subarray(0, piece.length);
      }
    },
  };
}

t.test('a written file is read back: metadata of every type, tensors, their data, nothing else', async (t) => {
  const dir = t.testdir();
  const path = join(dir, 'deep', 'er', 'model.gguf');
  const tensors = [
    counting('f32', 'F32', [3]),
    counting('half.long.name', 'F16', [5, 7], 4),
    counting('q8', 'Q8_0', [64, 3, 2], 5),
    counting('last', 'F32', [1]),
  ];
  await writeGguf(path, METADATA, tensors);

  const info = await readGgufFileInfo(path, { logWarnings: false });
  t.equal(info.version, 3);
  t.equal(info.metadata.general.name, 'größer 😀');
  t.same((info.metadata as unknown as { test: object }).test, {
    uint32: 0xffff_ffff,
    int32: -7,
    float32: 0.25,
    yes: true,
    no: false,
    uint64: 2n ** 63n + 1n,
    strings: ['', 'Ġthe', '中'],
    int32s: [1, -1],
    float32s: [-0.5, 1e10],
    uint8s: [0, 255],
  });
  t.same(
    info.tensorInfo?.map(({ name, dimensions, ggmlType }) => [name, dimensions, ggmlType]),
    [
      ['f32', [3], 0],
      ['half.long.name', [5, 7], 1],
      ['q8', [64, 3, 2], 8],
      ['last', [1], 0],
    ],
  );
  const file = await readFile(path);
  let end = encodeHead(METADATA, tensors).length;
  for (const [i, tensor] of tensors.entries()) {
    const at = Number(info.tensorInfo?.[i]?.fileOffset);
    const bytes = tensorBytes(tensor);
    t.equal(at % 32, 0);
    t.equal(at, end, 'tensors are stored one after another');
    t.same(file.subarray(at, at + bytes), Buffer.from(contents(tensor)));
    end = at + aligned(bytes);
  }
  t.equal(file.length, end);
  t.same(await readdir(join(dir, 'deep', 'er')), ['model.gguf']);
});

t.test(
  'if a source throws or yields too little or too much, no file and no partial file is left, and an old file is kept',
  async (t) => {
    const dir = t.testdir({ 'old.gguf': 'old' });
    const good = counting('a', 'F32', [64]);
    const bad: Record<string, () => Iterable<Uint8Array>> = {
      *throws() {
        yield new Uint8Array(8);
        throw new Error('no more');
      },
      short: () => [new Uint8Array(255)],
      long: () => [new Uint8Array(256), new Uint8Array(1)],
    };
    for (const [name, data] of Object.entries(bad)) {
      for (const file of ['new.gguf', 'old.gguf']) {
        await t.rejects(
          writeGguf(join(dir, file), METADATA, [good, { ...good, name: 'b', data }]),
          name === 'throws' ? /no more/ : /^b: .* 256/,
        );
      }
    }
    t.same(await readdir(dir), ['old.gguf']);
    t.equal(await readFile(join(dir, 'old.gguf'), 'utf8'), 'old');
  },
);

t.test('a process that is killed while it writes leaves no file under the final name', async (t) => {
  const dir = t.testdir();
  const script = join(dir, 'killed.mjs');
  const writer = new URL('../../../bench/models/gguf-writer.js', import.meta.url);
  await writeFile(
    script,
    `import { writeGguf } from ${JSON.stringify(writer.href)};
    const data = function* () { yield new Uint8Array(128); process.kill(process.pid, 'SIGKILL'); yield new Uint8Array(128); };
    await writeGguf(process.argv[2], new Map(), [{ name: 'a', type: 'F32', dimensions: [64], data }]);`,
  );
  const child = spawn(process.execPath, [script, join(dir, 'model.gguf')], { stdio: 'ignore' });
  const [, signal] = (await once(child, 'exit')) as [number | null, string | null];
  t.equal(signal, 'SIGKILL');
  const left = (await readdir(dir)).filter((name) => name !== 'killed.mjs');
  t.equal(left.length, 1);
  t.ok(left[0]?.startsWith(`model.gguf${PARTIAL_MARK}`));
});

t.test('invalid tensors are rejected before anything is written', async (t) => {
  const dir = t.testdir();
  const data = (): Uint8Array[] => [];
  const shapes: [TensorSource['type'], number[]][] = [
    ['Q8_0', [33]],
    ['F32', []],
    ['F32', [0]],
    ['F32', [1.5, 2]],
    ['F16', [1, 1, 1, 1, 1]],
  ];
  for (const [type, dimensions] of shapes) {
    await t.rejects(writeGguf(join(dir, 'x'), new Map(), [{ name: 'x', type, dimensions, data }]), RangeError);
  }
  const twice = counting('a', 'F32', [1]);
  await t.rejects(writeGguf(join(dir, 'x'), new Map(), [twice, twice]), /same name/);
  t.same(await readdir(dir), []);
});
